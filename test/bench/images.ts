import { askPreview } from '../e2e/preview.ts'
import { AtollServer } from '../e2e/server.ts'
import { type Comparison, compare } from './measure.ts'

const builds = 4
const starts = 20
const layers = 12
/** About what the installation of a package does: files, and time of a processor. */
const work = 'for f in 1 2 3 4; do head -c 20000000 /dev/urandom | gzip -1 > /opt/$(date +%N)-$f; done'
const program = 'import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)'

const run = (command: string) => ({ type: 'run', args: { commands: [command] } })

/**
 * Atoll against itself: a build whose last step changed, a sandbox from an image that was built on others, and the first answer of a server
 * that an image keeps running. On a server of its own, where nothing waits ready made.
 */
export async function imagesBench(): Promise<Comparison[]> {
  await using server = await AtollServer.start()
  const build = (name: string, image: object) => server.json('POST', '/api/snapshots', { name, image })
  const start = async (body: object): Promise<string> => {
    const { sandboxID } = (await server.json('POST', '/api/sandboxes', body)) as { sandboxID: string }
    return sandboxID
  }
  const stepsOf = (round: number, last: string) => [
    run(`echo ${round} > /opt/round`),
    ...[1, 2, 3].map((step) => run(`${work}; echo ${step}`)),
    run(last),
  ]
  // The whole build is timed second: the changed one goes on after the steps of the round before.
  await build('first', { steps: stepsOf(-2, 'true') })
  const rebuilt = await compare('build, last of five steps changed', 'the whole build', builds, {
    atoll: (round) => build(`changed-${round + 1}`, { steps: stepsOf(round - 1, 'false || true') }),
    other: (round) => build(`whole-${round + 1}`, { steps: stepsOf(round, 'true') }),
  })

  for (let count = 1; count <= layers; count++) {
    const steps = Array.from({ length: count }, (_, index) => run(`echo ${index} > /opt/layer-${index}`))
    await build(`layers-${count}`, { steps })
  }
  const layered = await compare(`start, image of ${layers} layers`, 'start, base', starts, {
    atoll: () => start({ snapshot: `layers-${layers}` }),
    other: () => start({}),
  })

  await build('baked', { memory: true, startCommand: `exec python3 -c "${program}"` })
  const baked = await compare('baked server, first answer', 'its fork alone', starts, {
    async atoll() {
      const sandboxId = await start({ snapshot: 'baked' })
      const { status } = await askPreview(server, `${sandboxId}-p8000.preview.localhost`)
      if (status !== 200) throw new Error(`the server answered ${status}`)
    },
    other: () => start({ snapshot: 'baked' }),
  })
  return [rebuilt, layered, baked]
}
