/** A file of a package of the Debian release that this machine runs, which the sandboxes' base image has too. Nothing is installed. */
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { promisify } from 'node:util'

const run = promisify(execFile)
const fileBytesMax = 16 * 1024 ** 2

/** `file`: its path in the package, with wildcards of tar. Needs the Debian mirrors of this machine's apt. */
export async function fileOfPackage(name: string, file: string): Promise<Buffer> {
  const folder = await mkdtemp('/var/tmp/atoll-package-')
  try {
    const options = ['-o', 'APT::Sandbox::User=root']
    const download = () => run('apt-get', [...options, 'download', name], { cwd: folder })
    await download().catch(async () => {
      // The lists of this machine are missing or too old, and are not for a test to change.
      await mkdir(`${folder}/lists/partial`, { recursive: true })
      options.push('-o', `Dir::State::Lists=${folder}/lists`, '-o', `Dir::Cache=${folder}`)
      await run('apt-get', [...options, 'update'])
      await download()
    })
    const archive = (await readdir(folder)).find((entry) => entry.endsWith('.deb'))
    const unpack = 'dpkg-deb --fsys-tarfile "$0" | tar --extract --to-stdout --wildcards "$1"'
    const argv = ['-o', 'pipefail', '-c', unpack, `${folder}/${archive}`, file]
    return (await run('bash', argv, { encoding: 'buffer', maxBuffer: fileBytesMax })).stdout
  } finally {
    await rm(folder, { recursive: true })
  }
}
