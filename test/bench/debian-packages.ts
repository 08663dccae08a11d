/** Programs to compare with, from Debian's packages: unpacked into a folder, never installed, so no service of theirs starts. */
import { execFile } from 'node:child_process'
import {
  access,
  chmod,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** Holds a merged `usr` and an `etc`. It is used as root, so a folder of anyone else at this path is refused. */
export const packagesDir = '/var/tmp/atoll-bench-packages'
const wanted = ['nginx', 'podman', 'incus-base', 'umoci']
/** What the installation of a package would link, as the first choice of Debian's alternatives. */
const alternatives = { iptables: 'iptables-nft', ip6tables: 'ip6tables-nft' }
const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg'

/** Whether `--install` has brought this program, such as `usr/sbin/nginx`, or the machine has it itself. */
export async function hasProgram(program: string): Promise<boolean> {
  const { uid } = await lstat(packagesDir).catch(() => ({ uid: 0 }))
  if (uid !== 0) throw new Error(`${packagesDir} does not belong to root`)
  const found = [packagesDir, '/'].map((folder) => access(`${folder}/${program}`))
  return (await Promise.allSettled(found)).some(({ status }) => status === 'fulfilled')
}

/** Downloads the packages, with those that they need and that this machine lacks, and replaces the folder. */
export async function installPackages(): Promise<void> {
  const scratch = await mkdtemp('/var/tmp/atoll-bench-install-')
  try {
    const apt = await aptOf(scratch)
    await apt('update')
    // One for each: without the one the others still serve.
    for (const name of wanted) {
      await apt('--download-only', '--yes', '--no-install-recommends', 'install', name).catch((error: unknown) => {
        console.error(`bench: ${name} is not to be had: ${String(error).split('\nE: ')[1] ?? String(error)}`)
      })
    }
    const tree = `${scratch}/tree`
    await mkdir(`${tree}/usr`, { recursive: true })
    // Debian's packages still name folders that every Debian machine has merged into /usr.
    for (const name of ['bin', 'sbin', 'lib', 'lib64']) {
      await mkdir(`${tree}/usr/${name}`)
      await symlink(`usr/${name}`, `${tree}/${name}`)
    }
    const archives = `${scratch}/cache/archives`
    for (const name of (await readdir(archives)).filter((file) => file.endsWith('.deb'))) {
      const unpack = 'dpkg-deb --fsys-tarfile "$0" | tar --extract --keep-directory-symlink --directory "$1"'
      await run('sh', ['-c', unpack, `${archives}/${name}`, tree])
    }
    for (const [name, target] of Object.entries(alternatives)) await symlink(target, `${tree}/usr/sbin/${name}`)
    await mkdir(`${tree}/etc`, { recursive: true })
    // Programs with set-user-ID bits are among them, and nobody updates them here.
    await chmod(tree, 0o700)
    await rm(packagesDir, { recursive: true, force: true })
    await rename(tree, packagesDir)
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}

/**
 * An apt with a configuration of its own: the Debian mirrors of this machine, with backports as well, which alone has Incus for
 * Debian 12. What the machine has counts as installed; its own sources and lists stay as they are.
 */
async function aptOf(folder: string): Promise<(...argv: string[]) => Promise<unknown>> {
  const format = ['$(ORIGIN)', '$(LABEL)', '$(SITE)', '$(RELEASE)', '$(COMPONENT)'].join('|')
  const { stdout } = await run('apt-get', ['indextargets', '--format', format, 'Created-By: Packages'])
  const targets = stdout.split('\n').map((line) => line.split('|'))
  const debian = targets.filter(([origin]) => origin === 'Debian')
  const mirror = debian.find(([, label]) => label === 'Debian')?.[2]
  if (mirror === undefined) throw new Error('apt knows no Debian mirror: run apt-get update first')
  const codename = /^VERSION_CODENAME=(\w+)$/m.exec(await readFile('/etc/os-release', 'utf8'))?.[1]
  const lines = debian.map(
    ([, , site, release, component]) => `deb [signed-by=${keyring}] ${site} ${release} ${component}`,
  )
  lines.push(`deb [signed-by=${keyring}] ${mirror} ${codename}-backports main`)
  await mkdir(`${folder}/lists/partial`, { recursive: true })
  await mkdir(`${folder}/cache/archives/partial`, { recursive: true })
  await writeFile(`${folder}/sources.list`, [...new Set(lines), ''].join('\n'))
  const settings = {
    'Dir::Etc::sourcelist': `${folder}/sources.list`,
    'Dir::Etc::sourceparts': '-',
    'Dir::State': folder,
    'Dir::State::lists': `${folder}/lists`,
    'Dir::State::status': '/var/lib/dpkg/status',
    'Dir::Cache': `${folder}/cache`,
    'Dir::Log': folder,
    'APT::Sandbox::User': 'root',
  }
  const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`])
  return (...argv) =>
    run('apt-get', [...options, ...argv], { env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } })
}
