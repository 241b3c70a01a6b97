"""The pages. The folder is not called `pages`: Streamlit would run the files of one by itself."""
