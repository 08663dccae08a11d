/**
 * `node model-process.ts PORT [STATUS…]`: a model API in a process of its own, to be killed. It refuses its first requests with these
 * statuses, and with the last of them for good when that ends in `…`; all others go to the demo model. It writes each answer's
 * status to its standard output, a line each, after `ready`, and ends with its standard input.
 */
import { createServer, request } from 'node:http'
import { startDemoModel } from '../../src/gateway/index.ts'

const [port = '', ...statuses] = process.argv.slice(2)
const model = await startDemoModel()

const front = createServer((asked, answer) => {
  const refusal = statuses[0]?.endsWith('…') ? statuses[0].slice(0, -1) : statuses.shift()
  if (refusal !== undefined) {
    asked.resume()
    answer.writeHead(Number(refusal), { 'content-type': 'application/json' }).end('{"error":{"message":"try later"}}')
    console.log(refusal)
    return
  }
  const { method, headers, url } = asked
  const passed = request(model.baseUrl + url, { method: method ?? 'POST', headers }, (response) => {
    console.log(response.statusCode)
    answer.writeHead(response.statusCode ?? 502, response.headers)
    response.pipe(answer)
  })
  asked.pipe(passed)
})
front.listen(Number(port), '127.0.0.1', () => console.log('ready'))
process.stdin.resume().once('end', () => process.exit())
