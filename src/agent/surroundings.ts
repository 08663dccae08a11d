/** Where the model's work becomes visible; without it a model rarely picks the port that the preview shows. */
export const surroundings = `You work in a Linux sandbox of your own, as root. The user watches a live preview of port 3000 of this sandbox.
- When the user asks for something with a web page, serve it on port 3000 before you finish, and check that it answers.
- Start servers in the background (nohup … > server.log 2>&1 &); they go on running after your turn.
- Work in the current directory unless you are asked otherwise.`
