import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { AtollServer } from '../e2e/server.ts'
import { type Comparison, compare } from './measure.ts'

const rounds = 60

/** A change until its webhook has come, against the change alone: the difference is the way of the event. */
export async function webhooksBench(): Promise<Comparison[]> {
  let come = Promise.withResolvers<void>()
  const receiver = createServer((request, response) => {
    request.resume().once('end', () => {
      response.end()
      come.resolve()
    })
  })
  receiver.listen(0, '127.0.0.1')
  await once(receiver, 'listening')
  await using server = await AtollServer.start({ env: { ATOLL_WEBHOOK_TARGETS: '127.0.0.1' } })
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`
  let number = 0
  const change = async () => {
    const name = `bench-${number++}`
    await server.json('POST', '/api/volumes', { name, sizeMB: 16 })
    return name
  }
  const remove = (name: string) => server.json('DELETE', `/api/volumes/${name}`)
  try {
    const { id } = (await server.json('POST', '/api/webhooks', { url, eventTypes: ['volume.created'] })) as {
      id: string
    }
    const pause = (enabled: boolean) => server.json('PATCH', `/api/webhooks/${id}`, { enabled })
    const row = await compare('a change until its webhook has come', 'the change alone', rounds, {
      async atoll() {
        const name = await change()
        await come.promise
        await remove(name)
      },
      async other() {
        await remove(await change())
      },
      // That of the change alone has come too before the next one is waited for.
      async settle() {
        await come.promise
        come = Promise.withResolvers()
      },
    })
    await pause(false)
    return [row]
  } finally {
    receiver.closeAllConnections()
    receiver.close()
  }
}
