import { useQueryClient } from '@tanstack/react-query'
import { BuildFailedError, ConnectionError, Image, type ImageInfo, NotFoundError } from 'atoll-sdk'
import { useEffect, useState, useSyncExternalStore } from 'react'
import { client } from '../../../account/client.ts'
import { pause } from '../../../lib/pause.ts'
import { LogLines, type LogView } from './log-lines.ts'

/**
 * `reading` what is kept → `complete`; `following` a build ⇄ `broken` (the connection is cut, it is opened again) → `complete`, once the state of the
 * image says so. `none`: nothing is kept of it.
 */
export type LogState = 'reading' | 'following' | 'broken' | 'complete' | 'none'

export interface BuildLog extends LogView {
  state: LogState
  error: unknown
}

const pauseMs = 2000

/** The log of the build of an image: while it runs as it comes, later what the server has kept. */
export function useBuildLog({ id, status }: Pick<ImageInfo, 'id' | 'status'>): BuildLog {
  const queries = useQueryClient()
  const isBuilding = status === 'building'
  const [log, setLog] = useState(() => new LogLines())
  const [state, setState] = useState<LogState>('reading')
  const [error, setError] = useState<unknown>()
  useEffect(() => {
    const gone = new AbortController()
    const { signal } = gone
    setError(undefined)
    setState(isBuilding ? 'following' : 'reading')
    const work = isBuilding
      ? followBuild(id, { signal, onLog: setLog, onState: setState })
      : readLog(id, { signal, onLog: setLog }).then(setState)
    work.then(
      () => isBuilding && void queries.invalidateQueries({ queryKey: ['images'] }),
      (reason: unknown) => !signal.aborted && setError(reason),
    )
    return () => gone.abort()
  }, [id, isBuilding, queries])
  const view = useSyncExternalStore(log.subscribe, log.view)
  return { ...view, state, error }
}

interface LogSinks {
  signal: AbortSignal
  /** A log that begins anew. */
  onLog: (log: LogLines) => void
}

/** Returns when the build has ended, however it did. */
async function followBuild(
  id: string,
  { signal, onLog, onState }: LogSinks & { onState: (state: LogState) => void },
): Promise<void> {
  while (!signal.aborted) {
    // A stream begins with the beginning of the build.
    const log = new LogLines()
    onLog(log)
    try {
      const image = await Image.get(id, { client, signal })
      onState('following')
      await image.follow({ signal, onEvent: (event) => log.take(event) })
      return
    } catch (error) {
      if (error instanceof BuildFailedError || error instanceof NotFoundError || signal.aborted) return
      if (!(error instanceof ConnectionError)) throw error
      onState('broken')
      await pause(pauseMs)
    }
  }
}

/** What was shown of the build stays until the first part has come. */
async function readLog(id: string, { signal, onLog }: LogSinks): Promise<LogState> {
  const log = new LogLines()
  try {
    const headers = { Accept: 'text/plain' }
    const { body } = await client.open('GET', `/api/images/${encodeURIComponent(id)}/log`, { headers, signal })
    const decoder = new TextDecoder()
    for await (const bytes of body ?? []) {
      log.takeText(decoder.decode(bytes, { stream: true }))
      onLog(log)
    }
    return 'complete'
  } catch (error) {
    if (error instanceof NotFoundError) return 'none'
    throw error
  }
}
