import { execFile } from 'node:child_process'
import { chmod, chown, mkdir, readFile, writeFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import { idsPerSandbox } from '../../src/runtime/oci/container-config.ts'
import { criuOptions, limitsRestored, masksRestored } from '../../src/runtime/criu/dump.ts'
import { ImageFolder, resolveHostTool } from '../../src/runtime/host/image-folder.ts'
import { HostNames } from '../../src/runtime/host-names.ts'
import { hostToolAt } from '../../src/runtime/hostd/index.ts'
import { imageDir } from '../support/images.ts'
import { BareContainers } from './bare-containers.ts'

const run = promisify(execFile)

interface Origin {
  dataDir: string
  sandboxId: string
  checkpointId: string
}

/**
 * `runc restore` of a checkpoint that Atoll made, by hand: the same images, the same configuration (user namespace, mounts,
 * seccomp filter, limits), the same base under an overlay. What Atoll does besides is what the ratio shows: records, a
 * quota, a network, fresh identities, the guest's answer, HTTP.
 */
export class BareTwin extends BareContainers {
  readonly #config: string
  readonly #hostTool: string
  readonly #rangeStart: number
  readonly #base: string
  readonly #emptyDir: string

  private constructor(config: string, base: string, hostTool: string, emptyDir: string) {
    super()
    this.#config = config
    this.#base = base
    this.#hostTool = hostTool
    this.#emptyDir = emptyDir
    const { linux } = JSON.parse(config) as { linux: { uidMappings: { hostID: number }[] } }
    this.#rangeStart = linux.uidMappings[0]?.hostID ?? 0
  }

  static async open({ dataDir, sandboxId, checkpointId }: Origin): Promise<BareTwin> {
    const names = new HostNames(dataDir)
    const source = names.sandboxDir(sandboxId)
    const config = (await readFile(`${source}/config.json`, 'utf8')).replaceAll(source, '{bundle}')
    const { base } = JSON.parse(await readFile(`${dataDir}/sandboxes/${sandboxId}.json`, 'utf8')) as { base: string }
    const basePath = new ImageFolder(imageDir).pathOf(base, 'base')
    const twin = new BareTwin(config, basePath, await resolveHostTool(imageDir), names.emptyDir)
    const { dir } = twin
    await chmod(dir, 0o711)
    await run('cp', ['-a', `${names.poolDir}/memory/checkpoints/${checkpointId}`, `${dir}/images`])
    await run('cp', ['-a', `${names.poolDir}/layers/${checkpointId}/upper`, `${dir}/upper`])
    await run('cp', ['-a', `${source}/etc`, `${dir}/etc`])
    await run('cp', ['-a', names.limitsDir(sandboxId), `${dir}/limits`])
    // The restored processes look for images as their own root user.
    await chown(`${dir}/images`, 0, twin.#rangeStart)
    await chmod(`${dir}/images`, 0o710)
    return twin
  }

  async restore(): Promise<string> {
    const { dir } = this
    const id = this.nextId()
    const bundle = `${dir}/${id}`
    await mkdir(bundle, { mode: 0o710 })
    await chown(bundle, 0, this.#rangeStart)
    await Promise.all(['root', 'work', 'run', 'restore'].map((name) => mkdir(`${bundle}/${name}`)))
    await run('cp', ['-a', `${dir}/upper`, `${dir}/etc`, `${dir}/limits`, bundle])
    const hostTool = hostToolAt(this.#hostTool)
    const range = { start: this.#rangeStart, count: idsPerSandbox }
    const overlay = { target: `${bundle}/root`, upper: `${bundle}/upper`, work: `${bundle}/work`, range }
    await hostTool.runTool({ op: 'mount-overlay', ...overlay, layers: [{ start: 0, path: this.#base }] })
    await hostTool.runTool({ op: 'make-source', dir: `${bundle}/etc` })
    const shared = { bytes: 65_536, inodes: 64, owner: this.#rangeStart }
    await hostTool.runTool({ op: 'mount-tmpfs', target: `${bundle}/run`, ...shared })
    const config = JSON.parse(this.#config.replaceAll('{bundle}', bundle)) as { linux: object }
    const linux = { ...config.linux, cgroupsPath: `/${id}` }
    await writeFile(`${bundle}/config.json`, JSON.stringify({ ...config, linux }))
    const options = [...criuOptions, ...masksRestored(this.#emptyDir), limitsRestored(`${bundle}/limits`)]
    await writeFile(`${bundle}/criu.conf`, `${options.join('\n')}\n`)
    return await this.restoreFrom(id, `${dir}/images`)
  }
}
