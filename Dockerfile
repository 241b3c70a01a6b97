# Two images from one file: `gateway` (the default) and `dashboard`, which is the gateway's with more packages.
#   docker build -t faregate .
#   docker build -t faregate-dashboard --target dashboard .
# For a release, pin the base by digest: --build-arg PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:...

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements/gateway.lock requirements/build.lock requirements/
RUN python -m venv /opt/faregate \
 && /opt/faregate/bin/pip install --require-hashes -r requirements/gateway.lock \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes -r requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY pricing/ pricing/
COPY routers/ routers/
COPY ledger/ ledger/
COPY gateway/ gateway/
COPY dashboard/ dashboard/
COPY faregate/ faregate/
RUN /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /opt/faregate/bin/pip install --no-index --no-deps /wheels/*.whl

FROM build AS build-dashboard
COPY requirements/dashboard.lock requirements/
RUN /opt/faregate/bin/pip install --require-hashes -r requirements/dashboard.lock

FROM ${PYTHON_IMAGE} AS base
RUN groupadd --gid 10001 faregate \
 && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin faregate \
 && install -d -o 10001 -g 10001 -m 0700 /var/lib/faregate
ENV PATH=/opt/faregate/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /var/lib/faregate
VOLUME /var/lib/faregate
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["faregate"]

FROM base AS dashboard
COPY --from=build-dashboard /opt/faregate /opt/faregate
EXPOSE 8501
CMD ["dashboard", "--config", "/etc/faregate/faregate.toml"]

FROM base AS gateway
COPY --from=build /opt/faregate /opt/faregate
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s --retries=3 \
  CMD ["faregate", "health"]
CMD ["serve", "--config", "/etc/faregate/faregate.toml"]
