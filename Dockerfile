# adsumd and adsum in one image: `docker run -p 127.0.0.1:4222:4222 … adsumd --listen 0.0.0.0:4222`, or see compose.yaml.
FROM python:3.12-slim

WORKDIR /usr/src/adsum
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY events events
COPY projector projector
COPY clients clients
RUN pip install --no-cache-dir --disable-pip-version-check --root-user-action ignore -c constraints.txt '.[projector,cli,speed]' \
    && rm -rf build *.egg-info \
    && useradd --create-home --home-dir /var/lib/adsum adsum

USER adsum
WORKDIR /var/lib/adsum
ENV PYTHONUNBUFFERED=1
CMD ["adsumd"]
