import { Command } from 'commander'
import { ownVersion } from '../lib/version.ts'
import { addApi } from './commands/api.ts'
import { addCheckpoint } from './commands/checkpoint.ts'
import { addCompletion } from './commands/completion.ts'
import { addContexts } from './commands/contexts.ts'
import { addCp } from './commands/cp.ts'
import { addCreate } from './commands/create.ts'
import { addDoctor } from './commands/doctor.ts'
import { addEvents } from './commands/events.ts'
import { addExec } from './commands/exec.ts'
import { addFork } from './commands/fork.ts'
import { addForward } from './commands/forward.ts'
import { addGet } from './commands/get.ts'
import { addHibernate } from './commands/hibernate.ts'
import { addImage } from './commands/image.ts'
import { addLogin } from './commands/login.ts'
import { addLogs } from './commands/logs.ts'
import { addLs } from './commands/ls.ts'
import { addMcp } from './commands/mcp.ts'
import { addOpen } from './commands/open.ts'
import { addPatch } from './commands/patch.ts'
import { addPorts } from './commands/ports.ts'
import { addPreview } from './commands/preview.ts'
import { addRestore } from './commands/restore.ts'
import { addRm } from './commands/rm.ts'
import { addSession } from './commands/session.ts'
import { addShell } from './commands/shell.ts'
import { addScale } from './commands/scale.ts'
import { addTimeout } from './commands/timeout.ts'
import { addUp } from './commands/up.ts'
import { addUse } from './commands/use.ts'
import { addVolume } from './commands/volume.ts'
import { addWake } from './commands/wake.ts'

/** The whole command line. The order is that of `atoll help`. */
export function makeProgram(): Command {
  const program = new Command('atoll')
    .description('Cloud sandboxes and agent sessions of an Atoll server.')
    .version(ownVersion(), '--version', 'print the version of this program')
    .option('--url <url>', 'the server (ATOLL_URL)')
    .option('--key <key>', 'the API key (ATOLL_API_KEY)')
    .option('--context <name>', 'a saved server, see "atoll contexts"')
    .option('--json', 'print what the API answers')
    .exitOverride()
    .configureOutput({ outputError: () => undefined })
    .helpCommand(true)
    .showSuggestionAfterError(true)
  const adders = [
    ...[addUp, addDoctor, addLogin, addUse, addContexts],
    ...[addCreate, addLs, addGet, addRm, addTimeout, addScale, addHibernate, addWake],
    ...[addExec, addShell, addCp, addLogs, addPorts, addOpen, addForward, addPreview],
    ...[addCheckpoint, addFork, addRestore, addPatch],
    ...[addImage, addVolume, addEvents],
    ...[addSession, addMcp, addApi, addCompletion],
  ]
  for (const add of adders) add(program)
  return program
}
