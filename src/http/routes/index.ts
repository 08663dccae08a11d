import { checkpointRoutes } from './checkpoints.ts'
import { docsRoutes } from './docs.ts'
import { eventRoutes } from './events.ts'
import { execRoutes } from './exec.ts'
import { fileRoutes } from './files.ts'
import { healthRoutes } from './health.ts'
import { machineRoutes } from './machine.ts'
import { messageRoutes } from './messages.ts'
import { metricsRoutes } from '../server/metrics.ts'
import { notImplementedRoutes } from './not-implemented.ts'
import { patchRoutes } from './patches.ts'
import { previewRoutes } from './previews.ts'
import { ptyRoutes } from './pty.ts'
import type { Route } from '../server/route.ts'
import { sandboxRoutes } from './sandboxes.ts'
import { sessionExportRoutes } from './session-export.ts'
import { sessionForkRoutes } from './session-fork.ts'
import { sessionRestartRoutes } from './session-restart.ts'
import { sessionTokenRoutes } from './session-tokens.ts'
import { sessionRoutes } from './sessions.ts'
import { signedUrlRoutes } from './signed-urls.ts'
import { tagRoutes } from './tags.ts'
import { timeoutRoutes } from './timeout.ts'
import { tlsAskRoutes } from './tls-ask.ts'

/** Every endpoint, in the order of the reference. */
export const routes: readonly Route[] = [
  ...sandboxRoutes,
  ...machineRoutes,
  ...timeoutRoutes,
  ...tagRoutes,
  ...checkpointRoutes,
  ...patchRoutes,
  ...previewRoutes,
  ...fileRoutes,
  ...signedUrlRoutes,
  ...execRoutes,
  ...ptyRoutes,
  ...sessionRoutes,
  ...messageRoutes,
  ...eventRoutes,
  ...sessionForkRoutes,
  ...sessionRestartRoutes,
  ...sessionTokenRoutes,
  ...sessionExportRoutes,
  ...healthRoutes,
  ...metricsRoutes,
  ...docsRoutes,
  ...tlsAskRoutes,
  ...notImplementedRoutes,
]
