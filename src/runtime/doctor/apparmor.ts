import { isLoaded, loadProfile, profileName, whyUnconfined } from '../oci/apparmor.ts'
import { oneLine, type HostCheck } from './check.ts'

/** Sandboxes start without it too. */
export const apparmorCheck: HostCheck = {
  name: 'AppArmor',
  required: false,
  async run() {
    const reason = await whyUnconfined()
    if (reason !== undefined) return { state: 'missing', found: reason }
    try {
      await loadProfile()
    } catch (error) {
      const advice = 'sandboxes start without a profile; the Debian package apparmor brings apparmor_parser'
      return { state: 'fails', found: oneLine((error as Error).cause ?? error), advice }
    }
    if (!(await isLoaded())) return { state: 'fails', found: `the kernel does not enforce ${profileName}` }
    return { state: 'works', found: `${profileName} is enforced` }
  },
}
