import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { Atoll, Image } from '../../sdk/src/index.ts'
import { AtollServer } from '../e2e/server.ts'
import { startTestRegistry } from '../support/image-registry.ts'
import { imageOf, type TestImage, tarOf } from '../support/oci-image.ts'
import { hasProgram } from './debian-packages.ts'
import { type Comparison, compare } from './measure.ts'
import { PackageWorld } from './package-world.ts'
import { Podman } from './podman.ts'
import { missingRow, notInstalled } from './report.ts'

const run = promisify(execFile)
const program = join(import.meta.dirname, '../../bin/atoll')
const rounds = 6
const steps = 10
const contextFiles = 10_000
const filesPerFolder = 100
const layers = 3
const layerMb = 100

/** Builds of Dockerfiles by the command line, and an import, against the tools of others. On a server of its own, where nothing waits ready made. */
export async function buildsBench(): Promise<Comparison[]> {
  const rows: Comparison[] = []
  await using registry = await startTestRegistry()
  await using server = await AtollServer.start({
    env: { ATOLL_REGISTRIES: JSON.stringify({ [registry.host]: { insecure: true } }) },
  })
  if (await Podman.isThere()) rows.push(...(await buildRows(server)))
  else missingRow('build of a Dockerfile', notInstalled('podman'))
  if (!(await hasProgram('usr/bin/umoci'))) missingRow('import of an image', notInstalled('umoci'))
  else rows.push(await importRow(server, registry))
  return rows
}

async function buildRows(server: AtollServer): Promise<Comparison[]> {
  await using podman = await Podman.open()
  const cached = join(podman.scratch, 'cached')
  const numbers = Array.from({ length: steps }, (_, n) => `RUN echo ${n} > /opt/${n}\n`)
  await mkdir(cached)
  await writeFile(join(cached, 'Dockerfile'), `FROM base\n${numbers.join('')}`)
  const large = join(podman.scratch, 'large')
  await mkdir(large)
  await writeFile(join(large, 'Dockerfile'), 'FROM base\nCOPY . /srv/app\nRUN echo done > /srv/done\n')
  for (let n = 0; n < contextFiles; n += 1) {
    const folder = join(large, String(Math.floor(n / filesPerFolder)))
    await mkdir(folder, { recursive: true })
    await writeFile(join(folder, `${n}.txt`), `${n}\n`.repeat(200))
  }
  const build = (name: string, folder: string) => atoll(server, podman.scratch, 'image', 'build', name, folder)
  const client = new Atoll({ url: server.url, apiKey: server.key })
  return [
    await compare(`build of ${steps} steps, all cached`, 'podman build', rounds, {
      atoll: (round) => build(`cached-${round + 1}`, cached),
      other: (round) => podman.build(`cached-${round + 1}`, cached),
    }),
    await compare('the same by the SDK', 'podman build', rounds, {
      atoll: (round) => Image.fromDockerfile(cached).build(`sdk-${round + 1}`, { client }),
      other: (round) => podman.build(`sdk-${round + 1}`, cached),
    }),
    await compare('build, one of 10 000 files changed', 'podman build', rounds, {
      prepare: () => writeFile(join(large, '0/0.txt'), randomBytes(64).toString('hex')),
      atoll: (round) => build(`large-${round + 1}`, large),
      other: (round) => podman.build(`large-${round + 1}`, large),
    }),
  ]
}

/** A command as a user types it. */
async function atoll(server: AtollServer, home: string, ...argv: string[]): Promise<void> {
  const env = { PATH: process.env['PATH'], HOME: home, ATOLL_URL: server.url, ATOLL_API_KEY: server.key }
  await run(program, argv, { env, maxBuffer: Infinity })
}

async function importRow(
  server: AtollServer,
  registry: { host: string; add(name: string, image: TestImage): void },
): Promise<Comparison> {
  await using world = await PackageWorld.open()
  const address = (name: string) => `${registry.host}/bench/${name}:1`
  // Each round has layers that neither side has seen; the upper half of their bytes compresses to nothing.
  const prepared = (round: number) => {
    const name = `round-${round + 1}`
    registry.add(`bench/${name}:1`, imageOf(Array.from({ length: layers }, (_, n) => layerOf(round, n))))
    return address(name)
  }
  let reference = ''
  let next = -1
  return await compare(`import of an image of ${layers * layerMb} MB`, 'skopeo copy + umoci unpack', 4, {
    async prepare() {
      reference = prepared(next)
      next += 1
    },
    atoll: (round) => server.json('POST', '/api/snapshots', { name: `import-${round + 1}`, image: { oci: reference } }),
    async other() {
      const [layout, bundle] = [join(world.scratch, 'layout'), join(world.scratch, 'bundle')]
      await world.run([
        'skopeo',
        'copy',
        '--quiet',
        '--src-tls-verify=false',
        `docker://${reference}`,
        `oci:${layout}:1`,
      ])
      await world.run(['umoci', 'unpack', '--image', `${layout}:1`, bundle])
      await rm(layout, { recursive: true })
      await rm(bundle, { recursive: true })
    },
  })
}

function layerOf(round: number, layer: number): Buffer {
  const mb = 1024 * 1024
  return tarOf(
    Array.from({ length: layerMb }, (_, n) => ({
      path: `opt/${round}/${layer}/${n}`,
      content: n % 2 === 0 ? randomBytes(mb) : Buffer.alloc(mb, `${round} ${layer} ${n}`),
    })),
  )
}
