"""The theory on problems whose gradient is known exactly. Everything here is meant for float64."""
