/** Checks of the programs that make the network of sandboxes: nft, ip, dnsmasq. */
import { run } from '../command.ts'
import { Layout } from './layout.ts'
import { connectionBounds, rulesFile } from './rules.ts'
import { Subnet } from './subnet.ts'
import { missing, runSetup, versionText, works, type HostCheck } from '../self-test.ts'

/** Loads the packet rules of the driver in a network namespace that ends with the program. */
export const nftablesCheck: HostCheck = {
  name: 'nftables',
  required: true,
  async run() {
    const version = await versionText('nft', '--version')
    if (version === undefined) return missing('no nft', runSetup)
    const rules = rulesFile({
      table: 'doctor',
      linkPrefix: 'doctor',
      subnet: new Subnet('10.200.0.0/16'),
      gatewayPort: 4180,
      metadataPort: 4181,
      egressPort: 4182,
      egressDnsPort: 4183,
      bounds: connectionBounds(undefined),
      egress: new Map([['10.200.0.2', 'confined']]),
    })
    await run(['unshare', '--net', 'nft', '-f', '-'], { input: `${rules}\ndelete table inet doctor\n` })
    return works(`${/v\S+/.exec(version)?.[0] ?? ''}; the rules of the network of sandboxes load`)
  },
}

/** Makes the links of a sandbox as the driver does, in a network namespace that ends with the program. */
export const linksCheck: HostCheck = {
  name: 'links',
  required: true,
  async run() {
    const version = await versionText('ip', '-V')
    if (version === undefined) return missing('no ip', runSetup)
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
    return works(`iproute2 ${/iproute2-([^,\s]+)/.exec(version)?.[1] ?? ''}; a routed link`)
  },
}

/** The DNS forwarder of sandboxes, which reach no resolver on a private address themselves. */
export const dnsmasqCheck: HostCheck = {
  name: 'dnsmasq',
  required: true,
  async run() {
    const version = await versionText('dnsmasq', '--version')
    if (version === undefined) return missing('no dnsmasq', runSetup)
    await run(['dnsmasq', '--test', '--conf-file=/dev/null', '--bind-dynamic', '--listen-address=127.0.0.1'])
    return works(/version (\S+)/.exec(version)?.[1] ?? 'unknown version')
  },
}
