import { createInterface } from 'node:readline/promises'
import { exitCodes } from './exit-codes.ts'

/** Whether there is a person to ask. */
export function canAsk(): boolean {
  return process.stdin.isTTY && process.stderr.isTTY
}

/** Asks a person at the terminal; anything but yes is a no. */
export async function confirmed(question: string): Promise<boolean> {
  const lines = createInterface({ input: process.stdin, output: process.stderr })
  lines.on('SIGINT', () => {
    lines.close()
    process.stderr.write('\n')
    process.exit(exitCodes.interrupted)
  })
  const closed = new Promise<string>((resolve) => {
    lines.once('close', () => resolve('\n'))
  })
  const answer = await Promise.race([lines.question(`${question} [y/N] `), closed])
  // Ctrl-D leaves the line open.
  if (answer === '\n') process.stderr.write(answer)
  lines.close()
  return /^y(es)?$/i.test(answer.trim())
}
