/** A browser that is signed in to the dashboard of a real server, and what goes wrong in it. */
import assert from 'node:assert/strict'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { launchBrowser, visit } from '../e2e/browser.ts'
import type { AtollServer } from '../e2e/server.ts'

/** Where the browser finds the server, and a key. */
type Address = Pick<AtollServer, 'url' | 'key'>

export interface VisitorOptions {
  width?: number
  height?: number
  isDark?: boolean
  isTouch?: boolean
}

/** The page's own faults. Chromium gives up requests when an address of the machine comes or goes; the page repeats them. */
const passing = /ERR_NETWORK_CHANGED|ERR_INTERNET_DISCONNECTED|ERR_CONNECTION_REFUSED|Failed to load resource/

/** One reader with a browser context of their own: their cookie, their tabs. */
export class Visitor implements AsyncDisposable {
  readonly context: BrowserContext
  readonly faults: string[] = []
  readonly #server: Address

  private constructor(server: Address, context: BrowserContext) {
    this.#server = server
    this.context = context
    context.on('console', (message) => {
      if (message.type() === 'error' && !passing.test(message.text())) this.faults.push(message.text())
    })
    context.on('weberror', (error) => this.faults.push(String(error.error())))
  }

  static async of(
    browser: Browser,
    server: Address,
    { width = 1280, height = 800, isDark = false, isTouch = false }: VisitorOptions = {},
  ): Promise<Visitor> {
    const context = await browser.newContext({
      viewport: { width, height },
      colorScheme: isDark ? 'dark' : 'light',
      hasTouch: isTouch,
    })
    return new Visitor(server, context)
  }

  /** Opens a path in a tab of its own. */
  async open(path: string): Promise<Page> {
    const page = await this.context.newPage()
    await visit(page, this.#server.url + path)
    return page
  }

  /** Signs in by the form, as a person does, and ends at the path. */
  async signIn(path = '/', key: string = this.#server.key): Promise<Page> {
    const page = await this.open(path)
    await page.getByLabel('API key').fill(key)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.waitForURL((url) => url.pathname !== '/sign-in')
    await isLive(page)
    return page
  }

  /** Neither an exception of the page nor a breach of its policy. */
  assertNoFaults(): void {
    assert.deepEqual(this.faults, [])
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.context.close()
  }
}

/** Waits until the page follows the log of the organisation. */
export async function isLive(page: Page): Promise<void> {
  await page.locator('[data-live=live]:visible').first().waitFor()
}

export { launchBrowser }
