import { run } from '../command.ts'
import { connectionBounds } from '../network/bounds.ts'
import { Layout } from '../network/layout.ts'
import { rulesFile } from '../network/rules.ts'
import { Subnet } from '../network/subnet.ts'
import { runSetup, type HostCheck } from './check.ts'

/** The very packet rules of the driver, in a network namespace that ends with the program. */
export const nftablesCheck: HostCheck = {
  name: 'nftables',
  required: true,
  async run() {
    const version = await run(['nft', '--version']).catch(() => undefined)
    if (version === undefined) return { state: 'missing', found: 'no nft', advice: runSetup }
    const rules = rulesFile({
      table: 'doctor',
      linkPrefix: 'doctor',
      subnet: new Subnet('10.200.0.0/16'),
      gatewayPort: 4180,
      bounds: connectionBounds(undefined),
    })
    await run(['unshare', '--net', 'nft', '-f', '-'], {
      input: `${rules}\ndelete table inet doctor\n`,
    })
    return { state: 'works', found: `${/v\S+/.exec(version)?.[0] ?? ''}; the rules of the network of sandboxes load` }
  },
}

/** The links of a sandbox as the driver lays them, in a network namespace that ends with the program. */
export const linksCheck: HostCheck = {
  name: 'links',
  required: true,
  async run() {
    const version = await run(['ip', '-V']).catch(() => undefined)
    if (version === undefined) return { state: 'missing', found: 'no ip', advice: runSetup }
    const layout = new Layout('00000000', new Subnet('10.200.0.0/16'))
    const port = layout.port(1)
    const lines = [
      `link add name ${layout.gatewayLink} type bridge`,
      ...layout.openGateway(),
      ...layout.makePort(port),
      ...layout.joinPort(port),
      ...layout.joinSandbox(port),
    ]
    await run(['unshare', '--net', 'ip', '-batch', '-'], { input: lines.join('\n') })
    return { state: 'works', found: `iproute2 ${/iproute2-([^,\s]+)/.exec(version)?.[1] ?? ''}; a routed link` }
  },
}
