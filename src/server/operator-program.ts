import { isServiceError } from '../errors.ts'
import { ConfigError } from './config.ts'

/** Runs a command of the operator. Known errors are printed without a trace, with status 2. */
export async function runProgramOfOperator(
  name: string,
  main: (words: readonly string[]) => Promise<number>,
): Promise<void> {
  process.umask(0o022)
  try {
    process.exitCode = await main(process.argv.slice(2))
  } catch (error) {
    const isTold = error instanceof ConfigError || isServiceError(error)
    console.error(`${name}: ${isTold ? error.message : String((error as Error).stack)}`)
    process.exitCode = isTold ? 2 : 1
  }
}
