# One party's machine: the command, on CPU, for a user without rights. No party's files are in the image: a home is a
# volume at /home/colonnade/home. See docs/how-to-run-in-containers.md.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
# Another place to take packages from, if need be: docker build --build-arg PIP_INDEX_URL=…
ARG PIP_INDEX_URL
# Exactly this torch, before anything else asks for "torch": a range would pull gigabytes of CUDA libraries.
RUN python -m pip install --no-cache-dir torch==2.13.0
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir /wheels/*.whl
RUN useradd --uid 1000 --create-home colonnade && install --directory --owner=colonnade --mode=700 /home/colonnade/home
USER colonnade
WORKDIR /home/colonnade/home
EXPOSE 7443
ENTRYPOINT ["colonnade"]
CMD ["--help"]
