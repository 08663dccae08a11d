/** Finds which published holes a runc has, by its version and by the changelog of its package. */
import { readFile } from 'node:fs/promises'
import { gunzipSync } from 'node:zlib'
import { fails, versionText, works, type HostCheck } from '../self-test.ts'

/**
 * Holes published since runc 1.1.5, each with the first fixed release of every branch; 1.1 gets no releases any more.
 * `docs/operate/security.md` says what each means for sandboxes.
 */
const holes: Record<string, readonly string[]> = {
  'CVE-2024-21626': ['1.1.12'],
  'CVE-2024-45310': ['1.1.14', '1.2.0'],
  'CVE-2025-31133': ['1.2.8', '1.3.3', '1.4.0'],
  'CVE-2025-52565': ['1.2.8', '1.3.3', '1.4.0'],
  'CVE-2025-52881': ['1.2.8', '1.3.3', '1.4.0'],
  'CVE-2026-41579': ['1.3.6', '1.4.3', '1.5.0'],
}
/** The changelog of Debian's package, which has fixes of its own. */
const changelogFile = '/usr/share/doc/runc/changelog.Debian.gz'

/** Warns of open holes. Not required: no known hole lets a sandbox out, as sandboxes are configured. */
export const runcFixesCheck: HostCheck = {
  name: "runc's fixes",
  required: false,
  async run() {
    const version = /^runc version (\S+)/m.exec((await versionText('runc', '--version')) ?? '')?.[1]
    if (version === undefined) return fails('the version of runc is not known')
    const open = openHoles(version, await changelog())
    if (open.length === 0) return works(`${version} has those of all published holes`)
    return fails(`${version} lacks ${open.join(', ')}`, 'docs/operate/security.md says what each means for sandboxes')
  },
}

/** A hole is fixed from the named release of its branch on, in later branches, and where the changelog of the package names it. */
export function openHoles(version: string, packageChangelog: string): string[] {
  return Object.entries(holes)
    .filter(([name, releases]) => !packageChangelog.includes(name) && !isFixed(version, releases))
    .map(([name]) => name)
}

function isFixed(version: string, releases: readonly string[]): boolean {
  const [major = 0, minor = 0, patch = 0] = numbersOf(version)
  const isEarly = /-rc/.test(version)
  const newest = releases.at(-1) ?? ''
  return releases.some((release) => {
    const [fixMajor = 0, fixMinor = 0, fixPatch = 0] = numbersOf(release)
    const isNewer = major > fixMajor || (major === fixMajor && minor > fixMinor)
    if (isNewer) return release === newest
    if (major !== fixMajor || minor !== fixMinor) return false
    return patch > fixPatch || (patch === fixPatch && !isEarly)
  })
}

function numbersOf(version: string): number[] {
  return (/^(\d+)\.(\d+)\.(\d+)/.exec(version) ?? []).slice(1).map(Number)
}

async function changelog(): Promise<string> {
  const packed = await readFile(changelogFile).catch(() => undefined)
  return packed === undefined ? '' : gunzipSync(packed).toString('utf8')
}
