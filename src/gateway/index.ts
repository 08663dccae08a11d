/** The model gateway: the only way from a sandbox to a model API. `demo/` holds a model that needs no key. */
export { startDemoModel, type DemoModel } from './demo/index.ts'
export { Gateway, type GatewayOptions } from './gateway.ts'
export { sessionMeter, type GatewayIdentity, type RecordedUsage } from './session-meter.ts'
export { allowing, type AllowList } from './shapes/allow.ts'
export { anthropicBaseUrlDefault, openaiBaseUrlDefault } from './wires.ts'
