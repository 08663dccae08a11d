import type { EventBus } from '../events/index.ts'
import type { Log } from '../lib/log.ts'
import { Sealer } from '../lib/sealed.ts'
import { ownVersion } from '../lib/version.ts'
import type { Organisations } from '../organisation/index.ts'
import { logEventTypes } from '../protocol/log-events.ts'
import type { RunningSandboxService } from '../sandbox/index.ts'
import type { Store } from '../store/index.ts'
import { noTargets, readTargets, Webhooks } from '../webhook/index.ts'
import type { Config } from './config.ts'
import { secretOf } from './credentials.ts'
import { DeliveryProcess } from './delivery.ts'

interface WebhookParts {
  config: Pick<Config, 'dataDir' | 'webhookTargets'>
  store: Pick<Store, 'webhooks' | 'webhookUrl'>
  bus: EventBus
  organisations: Pick<Organisations, 'limitsOf'>
  sandboxes: Pick<RunningSandboxService, 'get'>
  log: Log
}

/** Webhooks with the process that sends them. Both end with `started`. */
export async function startWebhooks(started: AsyncDisposableStack, parts: WebhookParts): Promise<Webhooks> {
  const { store, bus, organisations, sandboxes, log } = parts
  const { dataDir, webhookTargets: targets } = parts.config
  const secret = await secretOf(dataDir, 'webhook-secret')
  const delivery = new DeliveryProcess({
    ...{ dataDir, databaseUrl: store.webhookUrl, secret, targets, log },
    userAgent: `Atoll/${ownVersion()} (webhooks)`,
  })
  started.defer(() => delivery.close())
  const webhooks = new Webhooks({
    ...{ store: store.webhooks, bus, log, eventTypes: logEventTypes },
    sealer: new Sealer(secret),
    targets: readTargets(targets) ?? noTargets,
    destinationsMaxOf: (orgId) => organisations.limitsOf(orgId).webhooksMax,
    assertSandbox: async (orgId, sandboxId) => void (await sandboxes.get(orgId, sandboxId)),
    onDestination: () => delivery.start(),
  })
  started.defer(() => webhooks.close())
  await webhooks.start()
  return webhooks
}
