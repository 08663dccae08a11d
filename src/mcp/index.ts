export { mcpServer } from './server.ts'
export { allTools, chosenTools, defaultTools } from './tools/index.ts'
