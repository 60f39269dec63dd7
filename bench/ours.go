package main

const ours = "selfreconcile"
