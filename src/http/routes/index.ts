import { auditHeadRoute, auditRoutes } from './audit.ts'
import { cacheRoutes } from './caches.ts'
import { checkpointRoutes } from './checkpoints.ts'
import { contextRoutes } from './contexts.ts'
import { dashboardRoutes } from './dashboard.ts'
import { docsRoutes } from './docs.ts'
import { egressRoutes } from './egress.ts'
import { eventRoutes } from './events.ts'
import { execRoutes } from './exec.ts'
import { fileRoutes } from './files.ts'
import { imageRoutes } from './images.ts'
import { inspectionRoutes } from './inspection.ts'
import { mcpRoutes } from './mcp.ts'
import { keyRoutes } from './keys.ts'
import { metricsRoutes } from './metrics.ts'
import { notImplementedRoutes } from './not-implemented.ts'
import { operationRoutes } from './operations.ts'
import { organisationRoutes, ownLimitsRoute } from './organisations.ts'
import { patchRoutes } from './patches.ts'
import { portRoutes } from './ports.ts'
import { previewRoutes } from './previews.ts'
import { registryRoutes } from './registries.ts'
import { sandboxTreeRoutes } from './sandbox-trees.ts'
import { sandboxRoutes } from './sandboxes.ts'
import { scalingRoutes } from './scaling.ts'
import { secretStoreRoutes } from './secret-stores.ts'
import { sessionCapsuleRoutes } from './session-capsules.ts'
import { sessionEventRoutes } from './session-events.ts'
import { sessionExportRoutes } from './session-export.ts'
import { sessionRewindRoutes } from './session-rewinds.ts'
import { sessionTimelineRoutes } from './session-timeline.ts'
import { sessionRoutes } from './sessions.ts'
import { templateRoutes } from './templates.ts'
import { usageRoutes } from './usage.ts'
import { volumeRoutes } from './volumes.ts'
import { webhookRoutes } from './webhooks.ts'
import { whoamiRoutes } from './whoami.ts'
import type { Route } from '../server/route.ts'

/** Every endpoint, in the order of the reference. */
export const routes: readonly Route[] = [
  ...sandboxRoutes,
  ...scalingRoutes,
  ...metricsRoutes,
  ...checkpointRoutes,
  ...sandboxTreeRoutes,
  ...patchRoutes,
  ...imageRoutes,
  ...registryRoutes,
  ...contextRoutes,
  ...cacheRoutes,
  ...templateRoutes,
  ...volumeRoutes,
  ...egressRoutes,
  ...previewRoutes,
  ...fileRoutes,
  ...execRoutes,
  ...inspectionRoutes,
  ...portRoutes,
  ...sessionRoutes,
  ...sessionRewindRoutes,
  ...sessionTimelineRoutes,
  ...sessionCapsuleRoutes,
  ...sessionEventRoutes,
  ...sessionExportRoutes,
  ...eventRoutes,
  ...usageRoutes,
  ...secretStoreRoutes,
  ...webhookRoutes,
  ...auditRoutes,
  auditHeadRoute,
  ...keyRoutes,
  ownLimitsRoute,
  ...organisationRoutes,
  ...mcpRoutes,
  ...operationRoutes,
  ...whoamiRoutes,
  ...dashboardRoutes,
  ...docsRoutes,
  ...notImplementedRoutes,
]
