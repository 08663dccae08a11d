import { writeFileSync } from 'node:fs'
import { setPriority } from 'node:os'
import { pino } from 'pino'
import { ServiceError, isServiceError } from '../errors.ts'
import { startApp } from './app.ts'
import { ConfigError, readConfig, type Config } from './config.ts'

/** Above the usual 0; each step weighs a quarter more. */
const priority = -5

// What every call goes through, the server, its database and the relay of hostd, comes before the starts and the work of single sandboxes.
// `hostd` gives the programs that it starts the usual priority again.
try {
  setPriority(priority)
} catch {
  // A container may not be allowed to.
}

// The server runs as root for the sandboxes; only root may write its files.
process.umask(0o022)

try {
  const config = readConfig(process.env)
  // Standard output is for people; logs go to standard error.
  const log = pino({ level: config.logLevel }, pino.destination(2))
  const app = await startApp(config, log, {
    databaseGone(why) {
      log.fatal(`${why}; this server ends at once`)
      process.exit(1)
    },
    showKey(key, of) {
      try {
        print(`${of === 'operator' ? 'Operator' : 'API'} key, shown this once: ${key}`)
      } catch (error) {
        const { message } = error as Error
        throw new ServiceError(
          'unavailable',
          `the first ${of === 'operator' ? 'operator' : 'API'} key cannot be printed: ${message}`,
          { cause: error },
        )
      }
    },
  })
  try {
    print(welcome(config, app.freshKey))
  } catch (error) {
    log.warn({ err: error }, 'the welcome could not be printed')
  }

  let stopping = false
  const stop = (signal: NodeJS.Signals) => {
    if (stopping) return
    stopping = true
    log.info({ signal }, 'stopping; sandboxes run on')
    app.close().then(
      () => process.exit(0),
      (error: unknown) => {
        log.error({ err: error }, 'the stop failed')
        process.exit(1)
      },
    )
  }
  process.on('SIGTERM', stop)
  process.on('SIGINT', stop)
} catch (error) {
  const known = error instanceof ConfigError || isServiceError(error)
  process.stderr.write(`atoll: ${known ? error.message : String((error as Error).stack)}\n`)
  process.exit(known ? 2 : 1)
}

/** Throws unless standard output takes all of it. */
function print(text: string): void {
  writeFileSync(1, `${text}\n`)
}

/** The output of a started server: the address, the model, and a `curl` to paste, with a new key in it. */
function welcome(config: Config, freshKey: string | undefined): string {
  // A configured key is a secret, and this output may be kept in a log.
  const key = freshKey ?? (config.apiKey === undefined ? '<your key>' : '$ATOLL_API_KEY')
  const lines = [`Atoll serves at ${config.ownUrl} (documentation at ${config.ownUrl}/docs)`]
  if (config.model === 'demo') {
    lines.push('Model: demo, a local stand-in, since no model is configured (ANTHROPIC_API_KEY or OPENAI_API_KEY).')
  } else lines.push(`Model: ${config.model}`)
  lines.push(
    '',
    'Create a session:',
    '',
    `  curl -s ${config.ownUrl}/v1/sessions -H "X-API-Key: ${key}" \\`,
    `    -H 'Content-Type: application/json' -d '{"prompt": "A page about coral reefs", "user_id": "ada"}'`,
    '',
  )
  return lines.join('\n')
}
