import { fileURLToPath } from 'node:url'
import tailwind from '@tailwindcss/vite'
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

/** Where `npm run dev` finds the API. */
const server = process.env['ATOLL_URL'] ?? 'http://127.0.0.1:4100'
const key = process.env['ATOLL_API_KEY']
const sdk = fileURLToPath(new URL('../sdk/src/browser.ts', import.meta.url))

export default defineConfig({
  root: import.meta.dirname,
  plugins: [react(), tailwind()],
  resolve: { alias: { 'atoll-sdk': sdk } },
  // The server replaces this by a nonce of its own in each answer: libraries make style elements at run time.
  html: { cspNonce: 'NONCE_OF_THIS_ANSWER' },
  build: {
    outDir: 'dist',
    emptyOutDir: true,
    target: 'es2023',
    assetsInlineLimit: 0,
    // A style sheet of its own for a part would not be asked for again after its load has failed.
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
  },
  server: {
    strictPort: true,
    fs: { allow: ['..'] },
    // The Host header stays that of the page: the server compares it with Origin.
    // With ATOLL_API_KEY set nobody needs to sign in.
    proxy: Object.fromEntries(
      ['/api', '/v1', '/docs', '/openapi.json'].map((path) => [
        path,
        { target: server, ws: true, ...(key === undefined ? {} : { headers: { 'X-API-Key': key } }) },
      ]),
    ),
  },
})
