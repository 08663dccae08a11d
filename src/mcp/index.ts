export { mcpServer } from './server.ts'
export { chosenTools } from './tools/index.ts'
