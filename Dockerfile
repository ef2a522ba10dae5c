# fitmesh on a CPU. The image holds everything it needs: it runs without a network.
#
#   docker build -t fitmesh .
#   docker run --rm --network none --user "$(id -u):$(id -g)" -v "$PWD:/data" fitmesh run --video clip.mp4 --out out

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE THIRD_PARTY.md ./
COPY pose2d pose2d
COPY ccnet ccnet
COPY fitting fitting
COPY eval3dpw eval3dpw
COPY fitmesh fitmesh
# The extra index has torch's builds for CPUs, which are a tenth as large as PyPI's for GPUs.
RUN python -m venv /opt/fitmesh \
    && /opt/fitmesh/bin/pip install --no-cache-dir ".[hub]" --extra-index-url https://download.pytorch.org/whl/cpu

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 fitmesh
COPY --from=build /opt/fitmesh /opt/fitmesh
ENV PATH=/opt/fitmesh/bin:$PATH
# Fails the build where a library does not load or an embedded file is damaged.
RUN ["fitmesh", "doctor"]
# Any user may run the image (--user): compiled code and other caches go to a folder that all can write to.
ENV HOME=/tmp \
    MPLCONFIGDIR=/tmp/matplotlib \
    NUMBA_CACHE_DIR=/tmp/numba \
    PYTHONUNBUFFERED=1
USER fitmesh
WORKDIR /data
ENTRYPOINT ["fitmesh"]
CMD ["--help"]
