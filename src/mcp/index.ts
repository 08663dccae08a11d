export { mcpServer } from './server.ts'
export type { Tool } from './tool.ts'
export { chosenTools } from './tools/index.ts'
