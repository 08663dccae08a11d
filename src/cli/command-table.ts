import type { Command } from 'commander'

/** A command as `atoll help` lists it. Its file is read when the command, its help or its completion is asked for. */
export interface Entry {
  name: string
  /** One line of `atoll help`. */
  summary: string
  /** Left out of `atoll help`. */
  isHidden?: boolean
  /** Adds the command to the program, with its flags and its action. */
  load: () => Promise<(program: Command) => void>
}

/** Every command, in the groups and the order of `atoll help`. */
export const commandTable: Record<string, readonly Entry[]> = {
  'Sandboxes:': [
    entry('create', 'start a sandbox and print its id', async () => (await import('./commands/create.ts')).addCreate),
    entry('ls', 'list sandboxes', async () => (await import('./commands/ls.ts')).addLs),
    entry('get', 'print what is known of a sandbox', async () => (await import('./commands/get.ts')).addGet),
    entry('rm', 'stop sandboxes for good', async () => (await import('./commands/rm.ts')).addRm),
    entry('rename', 'give a sandbox another name', async () => (await import('./commands/rename.ts')).addRename),
    entry('tag', 'print or set the tags of a sandbox', async () => (await import('./commands/tag.ts')).addTag),
    entry('timeout', 'set the idle timeout', async () => (await import('./commands/timeout.ts')).addTimeout),
    entry('scale', 'change memory and CPU', async () => (await import('./commands/scale.ts')).addScale),
    entry(
      'hibernate',
      'save its memory and let it go',
      async () => (await import('./commands/hibernate.ts')).addHibernate,
    ),
    entry('wake', 'bring a hibernated one back', async () => (await import('./commands/wake.ts')).addWake),
  ],
  'In a sandbox:': [
    entry('exec', 'run a command', async () => (await import('./commands/exec.ts')).addExec),
    entry('shell', 'open a terminal', async () => (await import('./commands/shell.ts')).addShell),
    entry('ps', 'list processes', async () => (await import('./commands/ps.ts')).addPs),
    entry('kill', 'send a signal to processes', async () => (await import('./commands/kill.ts')).addKill),
    entry('cp', 'copy files and folders in or out', async () => (await import('./commands/cp.ts')).addCp),
    entry('sync', 'keep a folder like one here', async () => (await import('./commands/sync.ts')).addSync),
    entry('ssh', "connect by this machine's ssh", async () => (await import('./commands/ssh.ts')).addSsh),
    entry(
      'ssh-config',
      'let ssh, scp, rsync and editors reach sandboxes',
      async () => (await import('./commands/ssh-config.ts')).addSshConfig,
    ),
    hidden(
      'ssh-proxy',
      'carry the connection of ssh, for ssh-config',
      async () => (await import('./commands/ssh-proxy.ts')).addSshProxy,
    ),
    entry('logs', 'print the output of a command of exec', async () => (await import('./commands/logs.ts')).addLogs),
    entry(
      'ports',
      'list the ports on which something listens',
      async () => (await import('./commands/ports.ts')).addPorts,
    ),
    entry(
      'open',
      'print the URL of a port, or open it in a browser',
      async () => (await import('./commands/open.ts')).addOpen,
    ),
    entry('forward', 'serve a port on this machine', async () => (await import('./commands/forward.ts')).addForward),
    entry(
      'preview',
      'declare, list and remove previews',
      async () => (await import('./commands/preview.ts')).addPreview,
    ),
    entry(
      'egress',
      'say what it may reach, and see what it has asked for',
      async () => (await import('./commands/egress.ts')).addEgress,
    ),
  ],
  'Checkpoints, images and volumes:': [
    entry(
      'checkpoint',
      'keep, list and delete moments of sandboxes',
      async () => (await import('./commands/checkpoint.ts')).addCheckpoint,
    ),
    entry('fork', 'start sandboxes from a checkpoint', async () => (await import('./commands/fork.ts')).addFork),
    entry(
      'restore',
      'put a sandbox back to a checkpoint',
      async () => (await import('./commands/restore.ts')).addRestore,
    ),
    entry(
      'rewind',
      'put it back, and keep its present to undo that',
      async () => (await import('./commands/rewind.ts')).addRewind,
    ),
    entry('tree', 'draw checkpoints and forks', async () => (await import('./commands/tree.ts')).addTree),
    entry('diff', 'compare files of checkpoints', async () => (await import('./commands/diff.ts')).addDiff),
    entry(
      'patch',
      'scripts that run in what starts from a checkpoint',
      async () => (await import('./commands/patch.ts')).addPatch,
    ),
    entry('image', 'list, build and delete images', async () => (await import('./commands/image.ts')).addImage),
    entry(
      'registry',
      'log in to registries of images',
      async () => (await import('./commands/registry.ts')).addRegistry,
    ),
    entry('secret', 'secrets that never enter a sandbox', async () => (await import('./commands/secret.ts')).addSecret),
    entry('volume', 'folders that outlive sandboxes', async () => (await import('./commands/volume.ts')).addVolume),
  ],
  'Agents:': [
    entry(
      'session',
      'talk with agents, list and end their sessions',
      async () => (await import('./commands/session.ts')).addSession,
    ),
    entry(
      'mcp',
      'serve tools to a client of the Model Context Protocol',
      async () => (await import('./commands/mcp.ts')).addMcp,
    ),
  ],
  'Servers:': [
    entry(
      'status',
      'print whether the server answers and what you have there',
      async () => (await import('./commands/status.ts')).addStatus,
    ),
    entry('whoami', 'print whose key this is', async () => (await import('./commands/whoami.ts')).addWhoami),
    entry('login', 'check an API key and save it', async () => (await import('./commands/login.ts')).addLogin),
    entry('logout', 'remove a saved key', async () => (await import('./commands/logout.ts')).addLogout),
    entry('use', 'choose a saved server', async () => (await import('./commands/use.ts')).addUse),
    entry('contexts', 'list saved servers', async () => (await import('./commands/contexts.ts')).addContexts),
    entry('events', 'print what has happened', async () => (await import('./commands/events.ts')).addEvents),
    entry('key', 'make, list and end API keys', async () => (await import('./commands/key.ts')).addKey),
    entry(
      'webhook',
      'be called when something happens',
      async () => (await import('./commands/webhook.ts')).addWebhook,
    ),
    entry('limits', 'what the organisation may have', async () => (await import('./commands/limits.ts')).addLimits),
    entry('usage', 'what was used, and what it costs', async () => (await import('./commands/usage.ts')).addUsage),
    entry('audit', 'who has done what', async () => (await import('./commands/audit.ts')).addAudit),
    entry('org', 'organisations, for the operator', async () => (await import('./commands/org.ts')).addOrg),
    entry('api', 'send any request', async () => (await import('./commands/api.ts')).addApi),
    entry('up', 'start the server of this machine', async () => (await import('./commands/up.ts')).addUp),
    entry('doctor', 'try what this machine can do', async () => (await import('./commands/doctor.ts')).addDoctor),
    entry(
      'completion',
      'print the completion of a shell',
      async () => (await import('./commands/completion.ts')).addCompletion,
    ),
    hidden('complete', 'print what may stand next', async () => (await import('./commands/complete.ts')).addComplete),
  ],
}

/** Words of other programs, and what to use here. */
export const foreignWords: Record<string, string> = {
  stop: 'atoll hibernate keeps a sandbox for later, atoll rm ends it for good',
  pause: 'atoll hibernate keeps a sandbox for later with its memory',
  suspend: 'atoll hibernate keeps a sandbox for later with its memory',
  resume: 'atoll wake brings a hibernated sandbox back',
  start: 'atoll create starts a new sandbox, atoll wake brings a hibernated one back',
  run: 'atoll create starts a sandbox, atoll exec runs a command in it',
  attach: 'atoll shell opens a terminal, atoll logs --follow prints the output of a command',
  terminate: 'atoll rm ends a sandbox for good',
  inspect: 'atoll get prints what is known of a sandbox',
  top: 'atoll ps lists the processes of a sandbox',
  snapshot: 'atoll checkpoint keeps a moment of a sandbox',
  build: 'atoll image build makes an image',
  images: 'atoll image ls lists images',
  rmi: 'atoll image rm deletes images',
  pull: 'atoll image add fetches an image from a registry',
  push: 'atoll image push sends an image to a registry',
  save: 'atoll image export writes an image as an archive',
  load: 'atoll image import makes an image of an archive',
  history: 'atoll image log prints what the build of an image has told',
  version: 'atoll --version prints the version',
}

/** Two words for one command, here and below groups such as `volume`. */
export const synonyms = [
  ['ls', 'list'],
  ['rm', 'delete'],
  ['get', 'show'],
] as const

function entry(name: string, summary: string, load: Entry['load']): Entry {
  return { name, summary, load }
}

/** What other programs call, and no person. */
function hidden(name: string, summary: string, load: Entry['load']): Entry {
  return { name, summary, load, isHidden: true }
}
