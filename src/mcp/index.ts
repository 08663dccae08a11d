export { mcpServer } from './server.ts'
export type { Addresses, Tool } from './tool.ts'
export { chosenTools } from './tools/index.ts'
