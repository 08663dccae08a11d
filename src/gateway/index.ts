/** The model gateway: what sandboxes reach models through. `demo/` holds a model for those who have no key. */
export { createGateway, type Gateway, type GatewayOptions } from './gateway.ts'
export { startDemoModel, type DemoModel } from './demo/index.ts'
export {
  anthropicBaseUrlDefault,
  openaiBaseUrlDefault,
  type GatewayIdentity,
  type GatewayLog,
  type GatewayTokens,
  type GatewayUsage,
  type RecordedUsage,
  type Upstream,
} from './ports.ts'
