import { z } from 'zod'
import { at, ids, showExample } from './examples.ts'
import { imageName, secondTime } from './common.ts'

const path = z.string().min(1).describe('Absolute path in the image')
const content = z.string().describe('The file in base64')
const packages = z.array(z.string()).min(1).max(1000).describe('Names of packages')

const installStep = <Type extends string>(type: Type, description: string) =>
  z.strictObject({
    type: z.literal(type).describe(description),
    args: z.strictObject({ packages }).describe('Arguments of the step'),
  })

export const step = z
  .discriminatedUnion('type', [
    installStep('apt_install', 'Installs Debian packages as root'),
    installStep('pip_install', 'Installs Python packages for all users as root'),
    z.strictObject({
      type: z.literal('run').describe('Runs commands in one shell; the first that fails ends the build'),
      args: z
        .strictObject({ commands: z.array(z.string()).min(1).max(1000).describe('Commands of `sh`, in order') })
        .describe('Arguments of the step'),
    }),
    z.strictObject({
      type: z
        .literal('env')
        .describe('Sets variables for later steps, and for all that runs in a sandbox from the image'),
      args: z
        .strictObject({ vars: z.record(z.string(), z.string()).describe('Names and values') })
        .describe('Arguments of the step'),
    }),
    z.strictObject({
      type: z
        .literal('workdir')
        .describe('Makes the folder in which later `run` steps, and commands in a sandbox from the image, begin'),
      args: z.strictObject({ path }).describe('Arguments of the step'),
    }),
    z.strictObject({
      type: z.literal('add_file').describe('Writes a file with mode 0644 and makes its folders'),
      args: z
        .strictObject({
          path,
          content,
          encoding: z.literal('base64').optional().describe('Of `content`; there is no other'),
        })
        .describe('Arguments of the step'),
    }),
    z.strictObject({
      type: z.literal('add_dir').describe('Makes a folder and writes files into it'),
      args: z
        .strictObject({
          path,
          files: z
            .array(
              z.strictObject({
                relativePath: z.string().min(1).describe('Path below the folder, without `..`'),
                content,
              }),
            )
            .describe('Its files; may be empty'),
        })
        .describe('Arguments of the step'),
    }),
  ])
  .meta({ id: 'ImageStep', description: 'One step of a build' })

export type ImageStep = z.output<typeof step>

const memoryMB = z.int().min(1).meta({ minimum: 64, maximum: 65_536 })

export const manifest = z
  .strictObject({
    base: z.string().max(128).optional().describe('Name of the image that the build starts from. Default `base`'),
    oci: z
      .string()
      .max(512)
      .optional()
      .describe(
        'In place of `base`: an OCI image of a registry that the operator allows, `host/name:tag` or `host/name@sha256:…`',
      ),
    steps: z.array(step).optional().describe('In order. A build reuses the steps that it shares with an earlier one'),
    builderMemoryMB: memoryMB.optional().describe('Memory of the build in MiB. Default 4096'),
    runtimeMemoryMB: memoryMB
      .optional()
      .describe('Least memory in MiB of a sandbox that starts from the image. Default 1024'),
    name: z.string().optional().describe('Keeps the image under this name as well, as a snapshot'),
    memory: z
      .boolean()
      .optional()
      .describe('Keeps memory too: a sandbox goes on with the processes that ran at the end of the build'),
    startCommand: z
      .string()
      .optional()
      .describe('Shell command that runs at the end of the build and on in each sandbox. Needs `memory`'),
    readyCommand: z
      .string()
      .optional()
      .describe(
        'Shell command that is repeated until it succeeds; then the image is saved. Default: the start command listens on a TCP port',
      ),
  })
  .meta({ id: 'ImageManifest' })

export const createSnapshot = z.object({
  name: imageName.describe('1 to 128 letters, digits, `.`, `_` and `-`, the first a letter or digit'),
  image: manifest.describe('What to build'),
})
showExample(createSnapshot, { name: 'tools', image: { steps: [{ type: 'run', args: { commands: ['echo built'] } }] } })

export const createSnapshotQuery = z.object({
  async: z
    .enum(['0', '1', 'true', 'false'])
    .optional()
    .describe('`1`: answer 202 at once, and build in the background'),
})

export const image = z
  .object({
    id: z.string().describe('Id of the image, `img-…`'),
    orgId: z.string().describe('The organisation that owns it'),
    name: z.string().optional().describe('Absent for one that was only built for a sandbox'),
    contentHash: z.string().describe('Equal for equal content'),
    checkpointId: z.string().optional().describe('What sandboxes start from; absent until it is ready'),
    status: z.enum(['building', 'ready', 'failed']).describe('Its state'),
    manifest: z.looseObject({}).describe('The request, with `bytes` and `sha256` of each file in place of its content'),
    oci: z
      .object({
        digest: z.string().describe('`sha256:…`: what its reference meant when it was fetched'),
        entrypoint: z.array(z.string()).describe('ENTRYPOINT; not run'),
        cmd: z.array(z.string()).describe('CMD; not run'),
      })
      .optional()
      .describe('Of an image that is an OCI image, or was built on one'),
    public: z.boolean().describe('Every organisation may start sandboxes from its name'),
    createdAt: secondTime.describe('When it was asked for'),
    lastUsedAt: secondTime.describe('When a sandbox was last started from it, to the minute'),
    error: z.string().optional().describe('Why the build failed'),
    step: z.int().optional().describe('The step that failed, from 1'),
    type: z.string().optional().describe('Its type'),
    exitCode: z.int().optional().describe('Its exit code'),
    stderr: z.string().optional().describe('The end of what it wrote to standard error'),
  })
  .meta({
    id: 'Image',
    examples: [
      {
        id: ids.image,
        orgId: ids.org,
        name: 'tools',
        contentHash: '9f2c4e…',
        checkpointId: ids.checkpoint,
        status: 'ready',
        manifest: { base: 'base', steps: [{ type: 'run', args: { commands: ['echo built'] } }] },
        public: false,
        createdAt: at.second,
        lastUsedAt: at.second,
      },
    ],
  })

export const published = z
  .object({
    name: z.string().describe('Name of the image'),
    public: z.boolean().describe('Whether every organisation may start sandboxes from it'),
  })
  .meta({ id: 'PublishedImage', examples: [{ name: 'tools', public: true }] })

export const createTemplate = z.object({
  name: imageName.describe('Name of the image'),
  dockerfile: z
    .string()
    .max(1024 * 1024)
    .describe('Text of the Dockerfile'),
  tag: z.string().max(128).default('latest').describe('A word of your own'),
})
showExample(createTemplate, { name: 'tools', dockerfile: 'FROM base\nRUN echo built' })

export const template = z
  .object({
    id: z.string().describe('Id of the image, `img-…`'),
    templateID: z.string().describe('The same'),
    orgId: z.string().describe('The organisation that owns it'),
    name: z.string().describe('Its name, for `templateID` of a new sandbox'),
    tag: z.string().describe('The word given with it'),
    status: z.enum(['ready', 'building', 'error']).describe('Its state'),
    dockerfile: z.string().describe('What it was built from; empty for an image from steps'),
    isPublic: z.boolean().describe('Every organisation may start sandboxes from it'),
    templateType: z.enum(['dockerfile', 'sandbox']).describe('Whether it was built from a Dockerfile'),
    createdAt: secondTime.describe('When it was asked for'),
  })
  .meta({
    id: 'Template',
    examples: [
      {
        id: ids.image,
        templateID: ids.image,
        orgId: ids.org,
        name: 'tools',
        tag: 'latest',
        status: 'ready',
        dockerfile: 'FROM base\nRUN echo built',
        isPublic: false,
        templateType: 'dockerfile',
        createdAt: at.second,
      },
    ],
  })
