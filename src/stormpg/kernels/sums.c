/* Sums over time on a CPU. XLA writes a cumulative sum as a sequence of many small operations. */
/* x [..., H] -> Σ_{k≤h} x_k, or Σ_{k≥h} x_k */
static XLA_FFI_Error *sums(XLA_FFI_CallFrame *frame, int backward) {
    if (asked_for_version(frame)) return NULL;
    const XLA_FFI_Buffer *given = frame->args.args[0], *made = frame->rets.rets[0];
    int64_t H = given->dims[given->rank - 1], rows = 1;
    for (int64_t axis = 0; axis < given->rank - 1; axis++) rows *= given->dims[axis];
    for (int64_t row = 0; row < rows; row++) {
        const float *x = (const float *)given->data + row * H;
        float *y = (float *)made->data + row * H, total = 0.0f;
        if (backward)
            for (int64_t h = H - 1; h >= 0; h--) y[h] = total += x[h];
        else
            for (int64_t h = 0; h < H; h++) y[h] = total += x[h];
    }
    return NULL;
}

XLA_FFI_Error *running(XLA_FFI_CallFrame *frame) { return sums(frame, 0); }
XLA_FFI_Error *to_come(XLA_FFI_CallFrame *frame) { return sums(frame, 1); }
