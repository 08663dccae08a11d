import { z } from 'zod'
import { secondTime } from './common.ts'

const path = z.string().min(1).meta({ description: 'Absolute path in the image' })
const content = z.string().meta({ description: 'The file in base64' })
const packages = z.array(z.string()).min(1).max(1000).meta({ description: 'Names of packages' })

const installStep = <Type extends string>(type: Type, description: string) =>
  z.object({ type: z.literal(type).meta({ description }), args: z.object({ packages }).meta({ description: 'What' }) })

export const step = z
  .discriminatedUnion('type', [
    installStep('apt_install', 'Installs Debian packages as root'),
    installStep('pip_install', 'Installs Python packages for all users as root'),
    z.object({
      type: z.literal('run').meta({ description: 'Runs commands in one shell; the first that fails ends the build' }),
      args: z
        .object({ commands: z.array(z.string()).min(1).max(1000).meta({ description: 'Commands of `sh`, in order' }) })
        .meta({ description: 'What' }),
    }),
    z.object({
      type: z.literal('env').meta({ description: 'Sets variables for later steps and for login shells' }),
      args: z
        .object({ vars: z.record(z.string(), z.string()).meta({ description: 'Names and values' }) })
        .meta({ description: 'What' }),
    }),
    z.object({
      type: z.literal('workdir').meta({ description: 'Makes a folder' }),
      args: z.object({ path }).meta({ description: 'What' }),
    }),
    z.object({
      type: z.literal('add_file').meta({ description: 'Writes a file with mode 0644 and makes its folders' }),
      args: z
        .object({
          path,
          content,
          encoding: z.literal('base64').optional().meta({ description: 'Of `content`; there is no other' }),
        })
        .meta({ description: 'What' }),
    }),
    z.object({
      type: z.literal('add_dir').meta({ description: 'Makes a folder and writes files into it' }),
      args: z
        .object({
          path,
          files: z
            .array(
              z.object({
                relativePath: z.string().min(1).meta({ description: 'Path below the folder, without `..`' }),
                content,
              }),
            )
            .meta({ description: 'Its files; may be empty' }),
        })
        .meta({ description: 'What' }),
    }),
  ])
  .meta({ id: 'ImageStep', description: 'One step of a build' })

export type ImageStep = z.output<typeof step>

const memoryMB = z.int().positive()

export const manifest = z
  .object({
    base: z
      .string()
      .max(128)
      .optional()
      .meta({ description: 'Name of the image that the build starts from. Default `base`' }),
    oci: z.string().max(512).optional().meta({
      description:
        'In place of `base`: an OCI image of a registry that the operator allows, `host/name:tag` or `host/name@sha256:…`',
    }),
    steps: z
      .array(step)
      .optional()
      .meta({ description: 'In order. A build reuses the steps that it shares with an earlier one' }),
    builderMemoryMB: memoryMB.optional().meta({ description: 'Memory of the build in MiB. Default 4096' }),
    runtimeMemoryMB: memoryMB
      .optional()
      .meta({ description: 'Least memory in MiB of a sandbox that starts from the image. Default 1024' }),
    name: z.string().optional().meta({ description: 'Keeps the image under this name as well, as a snapshot' }),
    memory: z
      .boolean()
      .optional()
      .meta({ description: 'Keeps memory too: a sandbox goes on with the processes that ran at the end of the build' }),
    startCommand: z
      .string()
      .optional()
      .meta({ description: 'Shell command that runs at the end of the build and on in each sandbox. Needs `memory`' }),
    readyCommand: z.string().optional().meta({
      description:
        'Shell command that is repeated until it succeeds; then the image is saved. Default: the start command listens on a TCP port',
    }),
  })
  .meta({ id: 'ImageManifest' })

export const createSnapshot = z.object({
  name: z.string().meta({ description: '1 to 128 letters, digits, `.`, `_` and `-`, the first a letter or digit' }),
  image: manifest.meta({ description: 'What to build' }),
})

export const createSnapshotQuery = z.object({
  async: z
    .enum(['0', '1', 'true', 'false'])
    .optional()
    .meta({ description: '`1`: answer 202 at once, and build in the background' }),
})

export const image = z
  .object({
    id: z.string().meta({ description: 'Id of the image, `img-…`' }),
    orgId: z.string().meta({ description: 'The organisation that owns it' }),
    name: z.string().optional().meta({ description: 'Absent for one that was only built for a sandbox' }),
    contentHash: z.string().meta({ description: 'Equal for equal content' }),
    checkpointId: z.string().optional().meta({ description: 'What sandboxes start from; absent until it is ready' }),
    status: z.enum(['building', 'ready', 'failed']).meta({ description: 'Its state' }),
    manifest: z
      .looseObject({})
      .meta({ description: 'The request, with `bytes` and `sha256` of each file in place of its content' }),
    oci: z
      .object({
        digest: z.string().meta({ description: '`sha256:…`: what its reference meant when it was fetched' }),
        entrypoint: z.array(z.string()).meta({ description: 'ENTRYPOINT; not run' }),
        cmd: z.array(z.string()).meta({ description: 'CMD; not run' }),
      })
      .optional()
      .meta({ description: 'Of an image that is an OCI image, or was built on one' }),
    public: z.boolean().meta({ description: 'Every organisation may start sandboxes from its name' }),
    createdAt: secondTime.meta({ description: 'When it was asked for' }),
    lastUsedAt: secondTime.meta({ description: 'When a sandbox was last started from it, to the minute' }),
    error: z.string().optional().meta({ description: 'Why the build failed' }),
    step: z.int().optional().meta({ description: 'The step that failed, from 1' }),
    type: z.string().optional().meta({ description: 'Its type' }),
    exitCode: z.int().optional().meta({ description: 'Its exit code' }),
    stderr: z.string().optional().meta({ description: 'The end of what it wrote to standard error' }),
  })
  .meta({ id: 'Image' })

export const published = z
  .object({
    name: z.string().meta({ description: 'Name of the image' }),
    public: z.boolean().meta({ description: 'Whether every organisation may start sandboxes from it' }),
  })
  .meta({ id: 'PublishedImage' })

export const createTemplate = z.object({
  name: z.string().meta({ description: 'Name of the image' }),
  dockerfile: z
    .string()
    .max(1024 * 1024)
    .meta({ description: 'Text of the Dockerfile' }),
  tag: z.string().max(128).default('latest').meta({ description: 'A word of your own' }),
})

export const template = z
  .object({
    id: z.string().meta({ description: 'Id of the image, `img-…`' }),
    templateID: z.string().meta({ description: 'The same' }),
    orgId: z.string().meta({ description: 'The organisation that owns it' }),
    name: z.string().meta({ description: 'Its name, for `templateID` of a new sandbox' }),
    tag: z.string().meta({ description: 'The word given with it' }),
    status: z.enum(['ready', 'building', 'error']).meta({ description: 'Its state' }),
    dockerfile: z.string().meta({ description: 'What it was built from; empty for an image from steps' }),
    isPublic: z.boolean().meta({ description: 'Every organisation may start sandboxes from it' }),
    templateType: z.enum(['dockerfile', 'sandbox']).meta({ description: 'Whether it was built from a Dockerfile' }),
    createdAt: secondTime.meta({ description: 'When it was asked for' }),
  })
  .meta({ id: 'Template' })
