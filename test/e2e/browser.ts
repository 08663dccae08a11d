import { type Browser, chromium } from 'playwright-core'

export async function launchBrowser(more: readonly string[] = []): Promise<Browser> {
  return await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--no-first-run', ...more],
  })
}
