import { z } from 'zod'
import { at, ids, showExample } from './examples.ts'
import { imageName, secondTime } from './common.ts'

const path = z.string().min(1).describe('Absolute path in the image')
const content = z.string().describe('The file in base64')
/** Of `hello\n`. */
const contextExample = 'sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03'
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
    dockerfile: z
      .string()
      .max(1024 * 1024)
      .optional()
      .describe('In place of `base`, `oci` and `steps`: the text of a Dockerfile'),
    context: z.string().max(64).optional().describe('Id of the files that its `COPY` and `ADD` read, `ctx-…`'),
    buildArgs: z.record(z.string(), z.string()).optional().describe('Values of its `ARG`s'),
    target: z.string().max(128).optional().describe('The stage to build, by name or number. Default: the last one'),
    noCache: z.boolean().optional().describe('Runs all of its instructions again'),
    secrets: z
      .record(z.string(), z.string())
      .optional()
      .describe(
        'Of `RUN --mount=type=secret`: contents in base64 by id. Each is in memory for its instruction alone, and nowhere else',
      ),
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

const name = imageName.describe(
  '1 to 128 letters, digits, `.`, `_` and `-`, the first a letter or digit; behind a `:` a tag of such if wanted, `latest` being none',
)
const replace = z
  .boolean()
  .optional()
  .describe('Give a name that is taken to the new image when it is ready; the old one goes on without a name')

const contextDigest = z.string().regex(/^sha256:[0-9a-f]{64}$/)

export const contextFile = z
  .strictObject({
    path: z.string().max(4096).optional().describe('Relative, with `/` between names and without `..`'),
    pathBase64: z
      .string()
      .max(8192)
      .optional()
      .describe('The path as bytes in base64, in place of `path`: for a name that is no UTF-8'),
    type: z.enum(['file', 'directory', 'symlink']).default('file').describe('What it is; folders above it are implied'),
    mode: z.int().min(0).max(0o7777).describe('Permission bits'),
    digest: contextDigest.optional().describe('Of a file: `sha256:` and the hex digits of its content'),
    size: z.int().min(0).optional().describe('Of a file: its bytes'),
    target: z.string().max(4096).optional().describe('Of a link: where it leads. It is kept as it is'),
    targetBase64: z.string().max(8192).optional().describe('The same as bytes in base64'),
    mtime: z.number().optional().describe('When its content last changed, in Unix seconds'),
  })
  .meta({ id: 'ContextFile', description: 'A file, folder or link of a context' })

export type ContextFile = z.output<typeof contextFile>

export const createContext = z.object({
  files: z.array(contextFile).describe('All of the context, in any order'),
  image: manifest
    .pick({ dockerfile: true, target: true, buildArgs: true })
    .optional()
    .describe('The build that they are for: it is checked as far as it can be before they are sent'),
})
showExample(createContext, {
  files: [{ path: 'src/hello.txt', mode: 420, digest: contextExample, size: 6 }],
})

const contextState = {
  id: z.string().describe('Of the context, `ctx-…`; equal for equal files'),
  missing: z.array(contextDigest).describe('Digests of contents that the server lacks. Empty: a build may use it'),
}

export const context = z
  .object({
    ...contextState,
    uploadUrl: z.string().describe('Takes archives with files that are missing, for a day, without a key'),
  })
  .meta({
    id: 'BuildContext',
    examples: [
      {
        id: ids.context,
        missing: [contextExample],
        uploadUrl: `https://atoll.example.com/api/images/contexts/${ids.context}/archive/signed?org=${ids.org}&expires=1768559400&signature=5e0c…`,
      },
    ],
  })

export const uploadedContext = z
  .object({ ...contextState, ignored: z.int().describe('Entries of the archive that are none of its files') })
  .meta({ id: 'UploadedContext', examples: [{ id: ids.context, missing: [], ignored: 0 }] })

export const createSnapshot = z.object({ name, image: manifest.describe('What to build'), replace })
showExample(createSnapshot, { name: 'tools', image: { steps: [{ type: 'run', args: { commands: ['echo built'] } }] } })

export const createSnapshotQuery = z.object({
  async: z
    .enum(['0', '1', 'true', 'false'])
    .optional()
    .describe('`1`: answer 202 at once, and build in the background'),
})

export const importQuery = z.object({
  replace: z.enum(['0', '1', 'true', 'false']).optional().describe('`1`: give a name that is taken to the new image'),
})

export const tagImage = z.object({ name: name.describe('The other name, such as `tools:3`'), replace })
showExample(tagImage, { name: 'tools:3' })

export const pushImage = z.object({
  reference: z
    .string()
    .max(512)
    .describe(
      'Where to: `host/name:tag`. The operator must allow the host, and the organisation have credentials that do',
    ),
})
showExample(pushImage, { reference: 'ghcr.io/team/tools:3' })

export const pushedImage = z
  .object({
    reference: z.string().describe('As it was given'),
    digest: z.string().describe('`sha256:…`: what the reference means in the registry now'),
  })
  .meta({ id: 'PushedImage', examples: [{ reference: 'ghcr.io/team/tools:3', digest: `sha256:${'5e'.repeat(32)}` }] })

const words = z.array(z.string())

const imageConfig = z
  .object({
    entrypoint: words.optional().describe('ENTRYPOINT; not run'),
    cmd: words.optional().describe('CMD; not run'),
    labels: z.record(z.string(), z.string()).optional().describe('LABEL'),
    exposedPorts: words.optional().describe('EXPOSE, as `80/tcp`'),
    volumes: words.optional().describe('VOLUME; nothing is mounted there'),
    stopSignal: z.string().optional().describe('STOPSIGNAL; not used'),
    healthcheck: z
      .object({
        test: words.describe('`NONE`, `CMD` and words, or `CMD-SHELL` and a text'),
        intervalMs: z.number().optional().describe('Milliseconds between two'),
        timeoutMs: z.number().optional().describe('Milliseconds that one may take'),
        startPeriodMs: z.number().optional().describe('Milliseconds at the beginning in which failures do not count'),
        startIntervalMs: z.number().optional().describe('Milliseconds between two meanwhile'),
        retries: z.int().optional().describe('Failures in a row'),
      })
      .optional()
      .describe('HEALTHCHECK; not run'),
    shell: words.optional().describe('SHELL, for builds on it'),
    envs: z.record(z.string(), z.string()).optional().describe('ENV, in force in sandboxes from it'),
    cwd: z.string().optional().describe('WORKDIR, in force in sandboxes from it'),
    user: z.string().optional().describe('USER, in force in sandboxes from it'),
  })
  .meta({
    id: 'ImageConfig',
    description: 'What a Dockerfile, or the configuration of an OCI image, says of the image',
  })

export const image = z
  .object({
    id: z.string().describe('Id of the image, `img-…`'),
    orgId: z.string().describe('The organisation that owns it'),
    name: z.string().optional().describe('Absent for one that was only built for a sandbox, or was replaced'),
    replaces: z.string().optional().describe('The name that it takes from another image once it is ready'),
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
    sizeBytes: z
      .int()
      .optional()
      .describe('Bytes of its files, and of its memory if it has some, without its base; absent until it is ready'),
    config: imageConfig
      .optional()
      .describe('Of one that was built from a Dockerfile, and of one of a registry or an archive'),
    public: z.boolean().describe('Every organisation may start sandboxes from its name'),
    createdAt: secondTime.describe('When it was asked for'),
    lastUsedAt: secondTime.describe('When a sandbox was last started from it, to the minute'),
    error: z.string().optional().describe('Why the build failed'),
    step: z.int().optional().describe('The step that failed, from 1'),
    type: z.string().optional().describe('Its type'),
    line: z.int().optional().describe('Its line in the Dockerfile'),
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
  context: z.string().max(64).optional().describe('Id of the files that its `COPY` and `ADD` read, `ctx-…`'),
  tag: z.string().max(128).default('latest').describe('A word of your own'),
  replace,
})
showExample(createTemplate, { name: 'tools', dockerfile: 'FROM base\nRUN echo built' })

export const template = z
  .object({
    id: z.string().describe('Id of the image, `img-…`'),
    templateID: z.string().describe('The same'),
    orgId: z.string().describe('The organisation that owns it'),
    name: z.string().describe('Its name, for `templateID` of a new sandbox'),
    tag: z.string().describe('The word given with it'),
    status: z
      .enum(['ready', 'building', 'processing', 'error'])
      .describe('`processing`: defined by the operator, and built when it is first named'),
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
