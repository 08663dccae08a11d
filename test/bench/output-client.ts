import { Sandbox as PublicSandbox } from '@opencomputer/sdk'
import { once } from 'node:events'
import { WebSocket } from 'ws'
import { Atoll, Sandbox } from '../../sdk/src/index.ts'

/** `node output-client.ts WAY SANDBOX COMMAND ARGUMENT…` reads the output of the command in one of these ways and prints how many bytes came. */
const ways: Record<string, (argv: readonly string[]) => Promise<number>> = {
  async run([command = '', ...args]) {
    let bytes = 0
    await (await sandbox()).run(command, { args, onOutput: ({ data }) => void (bytes += data.length) })
    return bytes
  },
  async spawn([command = '', ...args]) {
    let bytes = 0
    for await (const { data } of await (await sandbox()).spawn(command, { args })) bytes += data.length
    return bytes
  },
  async socket([cmd = '', ...args]) {
    const path = `/api/sandboxes/${sandboxId}/exec`
    const { sessionID } = await client.json<{ sessionID: string }>('POST', path, { json: { cmd, args } })
    const socket = new WebSocket(`${url.replace('http', 'ws')}${path}/${sessionID}?api_key=${apiKey}`)
    let bytes = 0
    socket.on('message', (message: Buffer) => {
      if (message[0] === 1) bytes += message.length - 1
    })
    await once(socket, 'close')
    return bytes
  },
  async public([command = '', ...args]) {
    let bytes = 0
    const remote = await PublicSandbox.connect(sandboxId, { apiUrl: url, apiKey })
    const session = await remote.exec.start(command, { args, onStdout: (data) => void (bytes += data.length) })
    await session.done
    return bytes
  },
}

const [way = '', sandboxId = '', ...argv] = process.argv.slice(2)
const { ATOLL_URL: url = '', ATOLL_API_KEY: apiKey = '' } = process.env
const client = new Atoll({ url, apiKey })
const sandbox = () => Sandbox.connect(sandboxId, { client })
console.log(await ways[way]?.(argv))
