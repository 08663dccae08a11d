import type { ManifestOutline } from '../manifest.ts'
import { envsOf, runStep, summaryOf } from '../steps.ts'
import type { BuildFiles } from './files.ts'
import type { BuildStep, Stage } from './stage.ts'

interface StepFiles {
  files: BuildFiles
  key: string
}

/** The stage of a manifest with steps; `hashes` has one of each. */
export function stepsOf(
  { steps }: Pick<ManifestOutline, 'steps'>,
  hashes: readonly string[],
  { files, key }: StepFiles,
): Stage['steps'] {
  let envs: Record<string, string> = {}
  return steps.map((step, index): BuildStep => {
    const [before, number] = [envs, index + 1]
    envs = { ...envs, ...envsOf(step) }
    const place = { number, type: step.type }
    return {
      ...place,
      position: `[${number}/${steps.length}]`,
      summary: summaryOf(step),
      hash: hashes[index] ?? '',
      reads: [],
      run: (sandbox) =>
        runStep(step, {
          run: (command) => sandbox.run({ ...command, envs: { ...before, ...command.envs } }, place),
          makeFolder: (path) => sandbox.makeFolder(path),
          write: (path, { sha256, bytes }) => sandbox.write(path, files.open(key, sha256), bytes),
        }),
    }
  })
}
