# Node as a developer has it: the other package managers, TypeScript, and a compiler for native modules.
FROM base
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends build-essential pkg-config \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*
RUN npm install --global --no-audit --no-fund --no-update-notifier pnpm@10 yarn@1 tsx@4 typescript@5 \
 && npm cache clean --force
