# The command on CPUs.
#   docker build --tag stormpg .
#   docker run --rm --volume "$PWD:/work" stormpg train cartpole-continuous --trajectories 500 --out runs/first
# If your user number is not 1000, add --user "$(id -u):$(id -g)", so that the files are yours.

FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheel,target=/wheel \
    pip install --no-cache-dir "$(echo /wheel/*.whl)[all]" \
    && useradd --create-home --uid 1000 stormpg \
    && install --directory --owner stormpg /work
# Caches of compiled programs and fonts, writable for any --user.
ENV XDG_CACHE_HOME=/tmp/cache MPLCONFIGDIR=/tmp/cache/matplotlib
USER 1000
WORKDIR /work
ENTRYPOINT ["stormpg"]
CMD ["--help"]
