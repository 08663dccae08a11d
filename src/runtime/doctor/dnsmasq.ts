import { run } from '../command.ts'
import { runSetup, type HostCheck } from './check.ts'

/** The forwarder that sandboxes ask: they reach no resolver on a private address themselves. */
export const dnsmasqCheck: HostCheck = {
  name: 'dnsmasq',
  required: true,
  async run() {
    const version = await run(['dnsmasq', '--version']).catch(() => undefined)
    if (version === undefined) return { state: 'missing', found: 'no dnsmasq', advice: runSetup }
    await run(['dnsmasq', '--test', '--conf-file=/dev/null', '--bind-dynamic', '--listen-address=127.0.0.1'])
    return { state: 'works', found: /version (\S+)/.exec(version)?.[1] ?? 'unknown version' }
  },
}
