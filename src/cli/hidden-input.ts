import { createInterface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { exitCodes } from './exit-codes.ts'

/** A line that a terminal is asked for and does not show; without a terminal all of standard input. */
export async function hiddenInput(question: string): Promise<string> {
  const { stdin, stderr } = process
  if (!stdin.isTTY) return await text(stdin)
  stderr.write(question)
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() })
  const lines = createInterface({ input: stdin, output: silent, terminal: true })
  // In its raw terminal Ctrl-C is a character.
  lines.on('SIGINT', () => {
    lines.close()
    stderr.write('\n')
    process.exit(exitCodes.interrupted)
  })
  const line = await new Promise<string>((resolve) => {
    lines.once('line', resolve)
    lines.once('close', () => resolve(''))
  })
  lines.close()
  stderr.write('\n')
  return line
}
