/** The tree of a sandbox's checkpoints and forks in the page, by the keyboard alone. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { takeCheckpoint } from '../e2e/sandbox-calls.ts'
import { AtollServer } from '../e2e/server.ts'
import { launchBrowser, Visitor } from './dashboard.ts'

const server = await AtollServer.startForFile()
const browser = await launchBrowser()
after(() => browser.close())

test('dashboard: the tree follows what is made elsewhere, and its nodes are chosen and opened by keys', async () => {
  const { sandboxID } = (await server.json('POST', '/api/sandboxes', { name: 'root-of-all', timeout: 0 })) as {
    sandboxID: string
  }
  const checkpoint = await takeCheckpoint(server, sandboxID, 'prepared')
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.signIn(`/checkpoints/tree/${sandboxID}`)
  const tree = page.getByRole('tree')
  await tree.getByRole('treeitem', { name: /prepared/ }).waitFor()
  await server.json('POST', `/api/sandboxes/from-checkpoint/${checkpoint}`, { name: 'made-elsewhere' })
  await tree.getByRole('treeitem', { name: /made-elsewhere/ }).waitFor()
  await tree.focus()
  await page.keyboard.press('Home')
  await page.keyboard.press('ArrowDown')
  await page.waitForURL((url) => url.searchParams.get('node') === checkpoint)
  await page.getByText(checkpoint).first().waitFor()
  await page.keyboard.press('End')
  await page.waitForURL((url) => url.searchParams.get('node')?.startsWith('sb-') === true)
  assert.notEqual(new URL(page.url()).searchParams.get('node'), sandboxID)
  visitor.assertNoFaults()
})
