import { type Browser, chromium, type Page, type Request, type Response } from 'playwright-core'

export async function launchBrowser(more: readonly string[] = []): Promise<Browser> {
  return await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--no-first-run', ...more],
  })
}

/** A machine that runs all suites at once is slow. */
const waitMs = 180_000
/** Chromium gives up what it loads when an address of the machine comes or goes, as in other tests. */
const changesMax = 10

/** Opens a page, again when the network of the machine has changed meanwhile. What is awaited of the page from then on has `waitMs`. */
export async function visit(page: Page, url: string): Promise<Response | null> {
  page.setDefaultTimeout(waitMs)
  let isWhole = true
  // Of the page itself, or of its scripts and styles, without which it stays empty.
  const onFailed = (request: Request) => {
    if (isChange(request.failure()?.errorText)) isWhole = false
  }
  page.on('requestfailed', onFailed)
  try {
    for (let changes = 0; changes < changesMax; changes += 1) {
      isWhole = true
      const answer = await page.goto(url).catch((error: unknown) => {
        if (!isChange(String(error))) throw error
        isWhole = false
        return null
      })
      if (isWhole) return answer
    }
    return await page.goto(url)
  } finally {
    page.off('requestfailed', onFailed)
  }
}

function isChange(reason = ''): boolean {
  return reason.includes('ERR_NETWORK_CHANGED')
}
