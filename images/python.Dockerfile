# Python as a developer has it: pip, virtual environments, headers and a compiler for packages without a wheel.
FROM base
# The sandbox is the environment: pip may install for all of it.
ENV PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
      build-essential ipython3 pkg-config python-is-python3 python3-dev python3-pip python3-pytest python3-requests python3-venv \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*
