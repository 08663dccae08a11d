/** The machine of the server, as the operator sees it in a browser. */
import assert from 'node:assert/strict'
import { mkdir, writeFile } from 'node:fs/promises'
import { after, test } from 'node:test'
import { AtollServer } from '../e2e/server.ts'
import { operatorKey } from '../e2e/tenant.ts'
import { launchBrowser, Visitor } from './dashboard.ts'

const server = await AtollServer.startForFile({ env: { ATOLL_OPERATOR_KEY: operatorKey } })
const browser = await launchBrowser()
after(() => browser.close())

test('dashboard: the operator sees what is in quarantine, and has the machine checked again', async () => {
  const held = 'cp-9d2f6h1j4k7m3n8b'
  await using visitor = await Visitor.of(browser, server)
  const page = await visitor.open('/host')
  await page.getByLabel('API key').fill(operatorKey)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByRole('heading', { name: 'Quarantine' }).waitFor()
  await page.getByText('Empty. Here would be').waitFor()
  await mkdir(`${server.dataDir}/quarantine`, { recursive: true })
  await writeFile(`${server.dataDir}/quarantine/2026-01-02T03:04:05Z.checkpoint.unknown.${held}`, '')
  const answer = page.waitForResponse((response) => new URL(response.url()).search === '?fresh=true')
  await page.getByRole('button', { name: 'Check again' }).click()
  assert.equal((await answer).status(), 200)
  const row = page.getByRole('row', { name: held })
  await row.waitFor()
  await row.getByText('its record cannot be read').waitFor()
  visitor.assertNoFaults()
})
