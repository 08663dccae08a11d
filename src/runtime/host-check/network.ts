import { run } from '../command.ts'
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
      bridge: 'doctor0',
      linkPrefix: 'doctor',
      subnet: new Subnet('10.200.0.0/16'),
      gatewayPort: 4180,
      ports: [{ link: 'doctor1', mac: '02:00:00:00:00:01', address: '10.200.0.2' }],
    })
    await run(['unshare', '--net', 'nft', '-f', '-'], {
      input: `${rules}\ndelete table inet doctor\ndelete table bridge doctor\n`,
    })
    return { state: 'works', found: `${/v\S+/.exec(version)?.[0] ?? ''}; the rules of the network of sandboxes load` }
  },
}

/** A bridge and an isolated pair of interfaces on it, with addresses, in a network namespace that ends with the program. */
export const bridgeCheck: HostCheck = {
  name: 'bridge and veth',
  required: true,
  async run() {
    const version = await run(['ip', '-V']).catch(() => undefined)
    if (version === undefined) return { state: 'missing', found: 'no ip', advice: runSetup }
    const batch = [
      'link add doctor0 type bridge',
      'addr add 10.200.0.1/16 dev doctor0',
      'link set doctor0 up',
      'link add doctor1 type veth peer name doctor2',
      'link set doctor1 master doctor0 up',
      'link set doctor1 type bridge_slave isolated on',
      'link set doctor2 up',
      'link show doctor1',
    ]
    const shown = await run(['unshare', '--net', 'ip', '-details', '-batch', '-'], { input: `${batch.join('\n')}\n` })
    if (!shown.includes('isolated on')) return { state: 'fails', found: 'ports of the bridge cannot be isolated' }
    return {
      state: 'works',
      found: `iproute2 ${/iproute2-([^,\s]+)/.exec(version)?.[1] ?? ''}; isolated ports on a bridge`,
    }
  },
}
