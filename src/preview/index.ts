/**
 * The way from a browser to a port inside a sandbox: `host.ts` reads the host name, `gate.ts` says whether it may enter,
 * `proxy.ts` and `upgrade.ts` carry requests and sockets over connections of `pool.ts`, `page.ts` is what people see instead.
 */
export { createPreviewProxy } from './preview-proxy.ts'
export type { PreviewProxy, PreviewProxyOptions } from './preview-proxy.ts'
