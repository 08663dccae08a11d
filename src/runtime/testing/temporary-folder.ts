import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import type { TestContext } from 'node:test'

/** The real path of an empty folder, which is removed after the test. */
export async function temporaryFolder(t: TestContext): Promise<string> {
  const folder = await realpath(await mkdtemp(`${tmpdir()}/atoll-test-`))
  t.after(() => rm(folder, { recursive: true, force: true }))
  return folder
}
