import { createInterface } from 'node:readline'
import type { Session } from '../../../sdk/src/index.ts'
import { exitCodes } from '../exit-codes.ts'
import { clearStatus, hint, note, printable, writeLine } from '../output.ts'
import { followTurn, sendTo, type Sent, type Telling } from './turn.ts'

const prompt = '> '

/** The session of a chat, and its first message if that has begun it. */
export interface Begun {
  session: Session
  sent: Sent
}

/**
 * Sends each line of standard input as a message and prints what the agent says, turn by turn. Without a session the first line begins one. Returns
 * the exit code: behind a pipe that of a turn that was not done.
 */
export async function chat(known: Session | undefined, begin: (prompt: string) => Promise<Begun>): Promise<number> {
  const isTerminal = process.stdin.isTTY
  let session = known
  let exitCode: number = exitCodes.done
  for await (const line of isTerminal ? typedLines() : createInterface({ input: process.stdin })) {
    if (line.trim() === '') continue
    const begun = session === undefined ? await begin(line) : { session, sent: await sendTo(session, line) }
    session = begun.session
    const end = await followTurn(session, begun.sent, telling)
    if (end.isDone) continue
    note(`· ${end.text}`)
    if (isTerminal) continue
    if (end.isInterrupted) return exitCodes.interrupted
    exitCode = exitCodes.failed
  }
  if (isTerminal && session !== undefined)
    hint(`atoll session chat ${session.id} goes on, atoll session rm ${session.id} ends it`)
  return exitCode
}

const telling: Telling = {
  words: async (text) => {
    clearStatus()
    await writeLine(printable(text))
  },
  fact: (text) => note(`· ${text}`),
  hasLast: true,
}

/** Lines of a person, each after a prompt, until Ctrl-D or the second Ctrl-C. */
async function* typedLines(): AsyncGenerator<string> {
  let history: string[] = []
  for (;;) {
    const { promise, resolve } = Promise.withResolvers<string | undefined>()
    // Closed during a turn, so that Ctrl-C is a signal then.
    const lines = createInterface({ input: process.stdin, output: process.stderr, terminal: true, prompt, history })
    let isWarned = false
    lines.on('history', (all) => {
      history = all
    })
    lines.on('line', resolve)
    lines.on('close', () => resolve(undefined))
    lines.on('SIGINT', () => {
      if (isWarned && lines.line === '') process.exit(exitCodes.interrupted)
      isWarned = lines.line === ''
      lines.write(null, { ctrl: true, name: 'e' })
      lines.write(null, { ctrl: true, name: 'u' })
      if (isWarned) {
        process.stderr.write('\n')
        note('Ctrl-C again or Ctrl-D leaves')
      }
      lines.prompt()
    })
    lines.prompt()
    const line = await promise
    lines.close()
    if (line === undefined) {
      process.stderr.write('\n')
      return
    }
    yield line
  }
}
